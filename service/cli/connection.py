"""The way to the daemon of a home: its Unix socket, or its port."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.outcome import Exit, fail
from service.home import Home
from service.locks import is_held

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Address:
    """Where a daemon answers; ``socket`` is None where it has none, or it is gone."""

    port: int
    socket: Path | None


def find(home: Home) -> Address | None:
    """The address of the daemon that serves this home; None: no process serves it.

    The token goes only where a living process holds the home's daemon.lock: the port of a daemon
    that is gone may belong to anybody by now.

    Raises:
        OSError, ValueError, KeyError: it doesn't say where it answers, as while it starts.
    """
    if not is_held(home.daemon_lock):
        return None
    said = json.loads(home.daemon_file.read_bytes())
    path = said.get("socket")
    there = isinstance(path, str) and Path(path).is_socket()
    return Address(int(said["port"]), Path(path) if there else None)


def address(home: Home) -> Address:
    """The same; without a daemon, ends the command."""
    try:
        found = find(home)
    except (OSError, ValueError, KeyError) as error:
        fail(f"the daemon of {home.path} does not answer: {error}", Exit.NOT_REACHABLE)
    if found is None:
        fail(f"no daemon serves {home.path}; start it with: lorad serve", Exit.NOT_REACHABLE)
    return found


def http_client(home: Home, at: Address, timeout: float = TIMEOUT_SECONDS) -> httpx.Client:
    """A client that carries the owner's token; close it.

    Raises:
        OSError: there is no token.
    """
    import httpx  # here, so that the daemon, another command of this program, doesn't carry it

    return httpx.Client(
        base_url=f"http://127.0.0.1:{at.port}" if at.socket is None else "http://localhost",
        headers={"Authorization": f"Bearer {home.token.read_text().strip()}"},
        transport=httpx.HTTPTransport(uds=None if at.socket is None else str(at.socket)),
        timeout=timeout,
        trust_env=False,  # no proxy stands between a phone and itself
    )
