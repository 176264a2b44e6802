"""A run as it goes on: the daemon's server-sent events, read across breaks of the connection."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from service.cli.client import not_answering, refused
from service.cli.connection import Address, address, find, http_client
from service.home import Home

if TYPE_CHECKING:
    import httpx

_SILENCE_SECONDS = 40.0
"""The daemon says something every 15."""

_RETRIES = 20
_RETRY_SECONDS = 1.5


def run_events(home: Home, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event, new values of a run's fields) until the run has ended; the last is ``end``.

    ``path`` is the route of the run's events.

    A connection that breaks is made again, also to a daemon that was started anew meanwhile. Where
    none can be made for half a minute, or the daemon refuses, this ends the command.
    """
    import httpx

    last: dict[str, str] = {}
    failures = 0
    at: Address | None = address(home)
    while True:
        try:
            if at is None:
                raise ConnectionError("no daemon serves it any more")
            with (
                http_client(home, at, _SILENCE_SECONDS) as http,
                http.stream("GET", path, headers=last) as response,
            ):
                refused(response)
                if response.status_code == 204:
                    return  # nothing comes after the end
                for number, name, data in _events(response):
                    last, failures = {"Last-Event-ID": number}, 0
                    yield name, data
                    if name == "end":
                        return
            broke: Exception = ConnectionError("its stream of events ends again and again")
        except (OSError, httpx.HTTPError) as error:
            broke = error
        failures += 1
        if failures > _RETRIES:
            not_answering(home, broke)
        time.sleep(_RETRY_SECONDS)
        with suppress(OSError, ValueError, KeyError):  # it is just starting
            at = find(home)


def _events(response: httpx.Response) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(id, event, data) of each event whose data is an object."""
    number = name = data = ""
    for line in response.iter_lines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            number = value
        elif field == "event":
            name = value
        elif field == "data":
            data = value  # always one line: the daemon's JSON has no newline
        elif not line and data:
            yield number, name, json.loads(data)
            name = data = ""
