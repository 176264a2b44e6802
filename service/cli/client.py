"""Speaking with the daemon of a home as its owner."""

import json
from typing import Any
from urllib.parse import quote

from service.cli.outcome import Exit, fail
from service.home import Home
from service.locks import is_held

_TIMEOUT_SECONDS = 30.0


def get(home: Home, path: str) -> Any:
    """The JSON that ``GET path`` answers."""
    return _ask(home, "GET", path)


def get_all(home: Home, path: str, noun: str, client: str | None = None) -> list[Any]:
    """Every item of the list at ``path``, page by page; ``client`` is whose, None: the owner's."""
    found: list[Any] = []
    whose = "" if client is None else f"&client={quote(client, safe='')}"
    cursor = ""
    while True:
        page = get(home, f"{path}?limit=200{whose}{cursor}")
        found += page[noun]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def post(home: Home, path: str, body: Any = None) -> Any:
    """The JSON that ``POST path`` answers to this JSON body, or to none."""
    return _ask(home, "POST", path, body)


def put(home: Home, path: str, body: Any) -> Any:
    """The JSON that ``PUT path`` answers to this JSON body, which replaces whatever is there."""
    return _ask(home, "PUT", path, body, {"If-Match": "*"})


def delete(home: Home, path: str) -> Any:
    """The JSON that ``DELETE path`` answers."""
    return _ask(home, "DELETE", path)


def port(home: Home) -> int:
    """The port of the daemon that serves this home; without one, ends the command."""
    if not is_held(home.daemon_lock):
        fail(f"no daemon serves {home.path}; start it with: lorad serve", Exit.NOT_REACHABLE)
    try:
        return int(json.loads(home.daemon_file.read_bytes())["port"])
    except (OSError, ValueError, KeyError) as error:
        fail(f"the daemon of {home.path} does not answer: {error}", Exit.NOT_REACHABLE)


def _ask(
    home: Home, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Any:
    """What the daemon answers; without a daemon, or with an error, ends the command.

    The token is sent only while a living process holds the home's daemon.lock: the port of a daemon
    that is gone may belong to anybody by now.
    """
    import httpx  # here, so that the daemon, another command of this program, doesn't carry it

    address = f"http://127.0.0.1:{port(home)}{path}"
    try:
        token = home.token.read_text().strip()
        response = httpx.request(
            method,
            address,
            headers={"Authorization": f"Bearer {token}"} | (headers or {}),
            json=body,
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,  # no proxy stands between a phone and itself
        )
        answer = response.json()
    except (OSError, ValueError, httpx.HTTPError) as error:
        fail(f"the daemon of {home.path} does not answer: {error}", Exit.NOT_REACHABLE)
    if response.is_error:
        fields = "".join(f"\n  {one['field']} {one['message']}" for one in answer.get("errors", ()))
        fail(f"the daemon refused: {answer.get('detail', response.status_code)}{fields}")
    return answer
