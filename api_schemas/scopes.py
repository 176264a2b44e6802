"""Scopes: what a client may do."""

from typing import Literal, get_args

Scope = Literal[
    "examples:write",
    "status:read",
    "adapters:manage",
    "train",
    "train:override",
    "predict",
    "adapters:download",
    "metrics:read",
    "admin",
]
SCOPES: tuple[Scope, ...] = get_args(Scope)

ADMIN: Scope = "admin"
"""Stands for every other scope, and alone lets a client see to the clients themselves."""

PAGE: tuple[Scope, ...] = (ADMIN,)
"""What the page in the browser gets: it shows every app's adapters and pauses all training, and
nothing less than ``admin`` may do either."""

MEANINGS: dict[Scope, str] = {
    "examples:write": "hand examples in, correct and delete them; not read them back",
    "status:read": "see adapters, runs, versions, history, device and schedule; no example's text",
    "adapters:manage": "create, change and delete adapters; read and delete their examples",
    "train": "start, pause, resume, cancel and restart training",
    "train:override": "ask for training outside its usual conditions",
    "predict": "ask an adapter for labels or text",
    "adapters:download": "fetch the adapters' files",
    "metrics:read": "read the daemon's metrics: counts and readings of the whole device",
    "admin": "everything, for every client; pair, rotate, revoke and delete clients",
}
