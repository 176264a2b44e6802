"""Speaking with the daemon of a home as its owner."""

import json
from typing import Any

from service.cli.outcome import Exit, fail
from service.home import Home
from service.locks import is_held

_TIMEOUT_SECONDS = 10.0


def get(home: Home, path: str) -> Any:
    """The JSON that ``GET path`` answers; without a daemon, or with an error, ends the command.

    The token is sent only while a living process holds the home's daemon.lock: the port of a daemon
    that is gone may belong to anybody by now.
    """
    import httpx  # here, so that the daemon, another command of this program, doesn't carry it

    if not is_held(home.daemon_lock):
        fail(f"no daemon serves {home.path}; start it with: lorad serve", Exit.NOT_REACHABLE)
    try:
        port = json.loads(home.daemon_file.read_bytes())["port"]
        token = home.token.read_text().strip()
        response = httpx.get(
            f"http://127.0.0.1:{port}{path}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,  # no proxy stands between a phone and itself
        )
        body = response.json()
    except (OSError, ValueError, KeyError, httpx.HTTPError) as error:
        fail(f"the daemon of {home.path} does not answer: {error}", Exit.NOT_REACHABLE)
    if response.is_error:
        fail(f"the daemon refused: {body.get('detail', response.status_code)}")
    return body
