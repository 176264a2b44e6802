"""Handing a file of examples in, batch by batch, so that it can be done again after any break.

Each batch carries an Idempotency-Key made of its very lines: whoever repeats the import within 24
hours has each batch kept once. The key is a keyed hash, since the daemon keeps it: nobody can guess
a text from it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from service.cli.client import problem_of, refused
from service.cli.example_file import FileLine

if TYPE_CHECKING:
    import httpx

BATCH_LINES = 200
BATCH_BYTES = 512 * 1024
_MOST_LINE_BYTES = 2 * 1024 * 1024 - 1
_PATIENCE_SECONDS = 15.0
_ATTEMPTS = 6


@dataclass
class Imported:
    """What became of the lines. ``refused`` are (line, reason)."""

    accepted: int = 0
    before: int = 0
    cut: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Encoded:
    number: int
    data: bytes


class Importer:
    """Posts lines to one adapter's route ``path``."""

    def __init__(
        self,
        http: httpx.Client,
        path: str,
        key: bytes,
        done: Callable[[int], None],
    ) -> None:
        """Use ``key`` for the batches' keys; ``done`` is told how many lines are dealt with."""
        self._http = http
        self._path = path
        self._key = key
        self._done = done
        self.result = Imported()

    def send(self, lines: Iterable[FileLine]) -> None:
        """Send all lines; those that are refused are noted, the others of their batch are kept.

        Ends the command where the daemon refuses more than lines: an unknown adapter, a quota.
        """
        for batch in _batches(self._encoded(lines)):
            self._send(batch)

    def _encoded(self, lines: Iterable[FileLine]) -> Iterator[_Encoded]:
        for line in lines:
            if line.example is None:
                self._refuse(line.number, line.fault or "")
                continue
            text = json.dumps(line.example, ensure_ascii=False, separators=(",", ":"))
            data = text.encode("utf-8", "surrogatepass") + b"\n"
            if len(data) > _MOST_LINE_BYTES:
                self._refuse(line.number, "is longer than a request may be")
                continue
            yield _Encoded(line.number, data)

    def _send(self, batch: list[_Encoded]) -> None:
        while batch:
            response = self._post(b"".join(line.data for line in batch))
            faults = _faults(response, batch)
            if not faults:
                refused(response)
                kept = response.json()["examples"]
                if response.headers.get("Idempotent-Replay") == "true":
                    self.result.before += len(kept)
                else:
                    self.result.accepted += len(kept)
                self.result.cut += sum(one["cut_tokens"] > 0 for one in kept)
                self._done(len(batch))
                return
            for number, reason in faults.items():
                self._refuse(number, reason)
            batch = [line for line in batch if line.number not in faults]

    def _post(self, body: bytes) -> httpx.Response:
        """Try again what passes by itself: a busy database, another program's full disk."""
        key = hmac.new(self._key, self._path.encode() + b"\n" + body, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": f"import-{key}"}
        for attempt in range(_ATTEMPTS):
            response = self._http.post(self._path, content=body, headers=headers)
            wait = float(response.headers.get("Retry-After", _PATIENCE_SECONDS))
            last = attempt == _ATTEMPTS - 1
            if response.status_code != 503 or wait > _PATIENCE_SECONDS or last:
                break
            time.sleep(wait)
        return response

    def _refuse(self, number: int, reason: str) -> None:
        self.result.refused.append((number, reason))
        self._done(1)


def _batches(lines: Iterable[_Encoded]) -> Iterator[list[_Encoded]]:
    batch: list[_Encoded] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH_LINES or size + len(line.data) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line.data)
    if batch:
        yield batch


def _faults(response: httpx.Response, batch: list[_Encoded]) -> dict[int, str]:
    """The reasons against lines of the batch, by their numbers in the file."""
    if response.status_code != 422:
        return {}
    faults: dict[int, str] = {}
    errors: list[dict[str, Any]] = problem_of(response).get("errors", [])
    for error in errors:
        line = error.get("line")
        if isinstance(line, int) and 1 <= line <= len(batch):
            name = str(error["field"]).removeprefix("body").lstrip(".")
            reason = f"{name} {error['message']}".strip()
            faults.setdefault(batch[line - 1].number, reason)
    return faults
