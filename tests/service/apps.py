"""Apps as a daemon's clients: paired as a person and an app would, with an HTTP client each."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, Self

import httpx

from api_schemas.scopes import ADMIN, SCOPES, Scope
from tests.service.daemon import Daemon

ALL_BUT_ADMIN: tuple[Scope, ...] = tuple(scope for scope in SCOPES if scope != ADMIN)


class App:
    """A client by its credentials; usable as a context manager."""

    def __init__(self, daemon: Daemon, credentials: dict[str, Any]) -> None:
        self.daemon = daemon
        self.name: str = credentials["client"]
        self.token: str = credentials["token"]
        self.server_key_id: str = credentials["server_key_id"]
        self.server_key = decoded(credentials["server_key"])
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{daemon.port}",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.http.close()

    def proof(self, nonce: str, port: int | None = None) -> str:
        """What the daemon must answer to this nonce on that port."""
        message = f"lorad-hello-1\n127.0.0.1:{port or self.daemon.port}\n{nonce}"
        digest = hmac.new(self.server_key, message.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """Unpadded base64url."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def new_code(daemon: Daemon, name: str, *scopes: Scope, **fields: Any) -> str:
    """A pairing code from the owner."""
    body = {"name": name, "scopes": scopes or ALL_BUT_ADMIN} | fields
    response = daemon.http.post("/v1/pairing-codes", json=body)
    assert response.status_code == 201, response.text
    code: str = response.json()["code"]
    return code


def pair(daemon: Daemon, name: str, *scopes: Scope, **fields: Any) -> App:
    """A new client with these scopes; without any, with all but admin."""
    code = new_code(daemon, name, *scopes, **fields)
    response = redeem(daemon, code)
    assert response.status_code == 201, response.text
    return App(daemon, response.json())


def wrong(*codes: str) -> Iterator[str]:
    """Codes that are none of these."""
    return (f"{number:08d}" for number in range(100) if f"{number:08d}" not in codes)


def redeem(daemon: Daemon, code: str, **fields: Any) -> httpx.Response:
    """POST /v1/pair without any token."""
    return httpx.post(
        f"http://127.0.0.1:{daemon.port}/v1/pair",
        json={"code": code} | fields,
        timeout=30,
        trust_env=False,
    )
