"""Every operation of the API, walked through by the daemon's own OpenAPI document."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.service.daemon import Daemon

LABEL = "canary-label"

BODIES: dict[str, Any] = {
    "POST /v1/adapters": {"name": "new", "base_model": "tiny"},
    "POST /v1/adapters/{name}/examples": {"input": "hello", "label": LABEL},
    "POST /v1/adapters/{name}/predict": {"input": "hello"},
    "POST /v1/adapters/{name}/runs": {},
    "POST /v1/chat/completions": {
        "model": "no-such-thing",
        "messages": [{"role": "user", "content": "hello"}],
    },
    "PATCH /v1/adapters/{name}": {"max_tokens": 100},
    "PATCH /v1/clients/{name}": {},
    "POST /v1/pair": {"code": "00000000"},
    "POST /v1/pairing-codes": {"name": "another", "scopes": ["train"]},
    "PUT /v1/pause": {"until": None},
    "PUT /v1/schedule": {"windows": [{"days": ["mon"], "from": "23:00", "to": "07:00"}]},
}
"""A valid body for each operation that takes one."""

ZIP = "POST /v1/adapters/{name}/versions/import"
"""What takes no JSON, but a zip file."""

QUERIES: dict[str, dict[str, str]] = {
    "DELETE /v1/adapters/{name}/examples": {"all": "true"},
    "GET /v1/hello": {"nonce": "A" * 22, "key": "nobody"},
}
"""A valid query for each operation that needs one."""


@dataclass(frozen=True)
class Operation:
    """A method and a path, who may use it (None: whoever, without a token), and what it takes."""

    method: str
    path: str
    scopes: tuple[str, ...] | None
    queries: frozenset[str]
    takes_body: bool

    @property
    def places(self) -> list[str]:
        """The names in braces in its path."""
        return re.findall(r"{(\w+)}", self.path)

    def valid(self) -> dict[str, Any]:
        """A valid body and query, as options of `send`."""
        found: dict[str, Any] = {"params": QUERIES.get(str(self), {})}
        if str(self) == ZIP:
            found |= {"content": b"PK", "headers": {"Content-Type": "application/zip"}}
        elif self.takes_body:
            assert str(self) in BODIES, f"say in BODIES what {self} takes"
            found["json"] = BODIES[str(self)]
        return found

    def send(self, http: httpx.Client, places: dict[str, Any], **options: Any) -> tuple[int, str]:
        """The status and body of the answer; a stream that begins is not read."""
        path = self.path.format(**{name: places.get(name, "x") for name in self.places})
        headers = {"If-Match": "*"} | options.pop("headers", {})
        with http.stream(self.method, path, headers=headers, **options) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return response.status_code, ""
            return response.status_code, response.read().decode("utf-8", "replace")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def every(daemon: Daemon) -> Iterator[Operation]:
    """The operations of the document."""
    document = daemon.http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", [])
            yield Operation(
                method.upper(),
                path,
                tuple(operation["x-scopes"]) if "security" in operation else None,
                frozenset(one["name"] for one in parameters if one["in"] == "query"),
                "requestBody" in operation,
            )
