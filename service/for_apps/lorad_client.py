"""A client for lorad in one file, of the standard library alone: copy it into your app.

    credentials = pair(8765, "1234 5678")  # keep them (vars(credentials)) where only your app reads
    with Lorad(credentials) as lorad:
        lorad.post_examples("mail", [{"input": "Lunch on Friday?", "label": "later"}])

Any app can listen on lorad's port while lorad isn't running. So on each connection the daemon
must first prove, to a fresh nonce, that it holds the server key from the pairing and listens on
the very port that was dialled; before that neither the token nor a text is sent.
"""

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

_PASSING = {429, 503, 507}


@dataclass(frozen=True)
class Credentials:
    """What pairing gives. Whoever has them can act as your app."""

    port: int
    client: str
    server_key_id: str
    token: str = field(repr=False)
    server_key: str = field(repr=False)


class LoradError(Exception):
    """lorad said no: `status`, one sentence, and `errors` ({"field", "message"}) where it has any.

    ``retry_after``: in so many seconds the same request may succeed.
    """

    def __init__(self, problem: Mapping[str, Any], retry_after: float | None) -> None:
        """From a problem as lorad answers it (RFC 9457)."""
        super().__init__(f"{problem.get('status')}: {problem.get('detail')}")
        self.status = int(problem.get("status", 0))
        self.detail = str(problem.get("detail", ""))
        self.errors: list[dict[str, Any]] = list(problem.get("errors", []))
        self.retry_after = retry_after


class NotLoradError(Exception):
    """What answers on the port isn't the daemon of this pairing, or the pairing was replaced."""


def pair(port: int, code: str) -> Credentials:
    """Turn the code that ``lorad pair`` shows into credentials. Raises `LoradError`."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        body = json.dumps({"code": code})
        connection.request("POST", "/v1/pair", body, {"Content-Type": "application/json"})
        given = _answer(connection.getresponse())
    fields = ("client", "server_key_id", "token", "server_key")
    return Credentials(port, *(str(given[name]) for name in fields))


class Lorad:
    """lorad as one paired app sees it. For one thread at a time.

    What passes (too much for now, a busy database, a full disk, a broken connection) is tried
    again up to ``attempts`` times, as long as lorad asks for no more than ``patience`` seconds.
    ``timeout``: the longest silence on a connection, in seconds (events are never silent for 20).
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        patience: float = 10,
        attempts: int = 4,
        timeout: float = 30,
    ) -> None:
        """Nothing is connected yet."""
        self._credentials = credentials
        self._patience = patience
        self._attempts = attempts
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def adapter(self, name: str) -> Any:
        """How an adapter is: its examples counted, its run, its active version."""
        return self.request("GET", _path(name))

    def post_examples(self, adapter: str, examples: Sequence[Mapping[str, Any]]) -> Any:
        """Hand in up to 500 examples: when this returns, all are on the disk; else none is."""
        return self.request("POST", f"{_path(adapter)}/examples", {"examples": list(examples)})

    def delete_examples(self, adapter: str, *, external_id: str | None = None) -> Any:
        """Delete the example with that external_id or, without one, all of the adapter's."""
        which = {"all": "true"} if external_id is None else {"external_id": external_id}
        return self.request("DELETE", f"{_path(adapter)}/examples?{urlencode(which)}")

    def predict(self, adapter: str, *inputs: str, **options: Any) -> Any:
        """Ask for the labels of up to 100 texts; options are ``prior`` and ``version``.

        The first answer may take some seconds: give `Lorad` a ``timeout`` above its 30.
        """
        return self.request("POST", f"{_path(adapter)}/predict", {"inputs": inputs, **options})

    def train(self, adapter: str, **training: Any) -> Any:
        """Ask for a training; the answer is its run."""
        body = {"training": training} if training else {}
        return self.request("POST", f"{_path(adapter)}/runs", body)

    def run(self, run: int) -> Any:
        """How far a run is."""
        return self.request("GET", f"/v1/runs/{run}")

    def download(self, adapter: str, version: int, format: str = "peft") -> bytes:
        """A version as a zip for PEFT, or with ``gguf`` as a file for llama.cpp."""
        path = f"{_path(adapter)}/versions/{version}/download?{urlencode({'format': format})}"
        return bytes(self.request("GET", path))

    def import_version(self, adapter: str, zipped: bytes) -> Any:
        """Make a version of an adapter that peft saved elsewhere, zipped."""
        return self.request("POST", f"{_path(adapter)}/versions/import", zipped)

    def activate(self, adapter: str, version: int) -> Any:
        """Make this the version that predictions come from."""
        return self.request("POST", f"{_path(adapter)}/versions/{version}/activate")

    def events(self, run: int) -> Iterator[tuple[str, Any]]:
        """What happens to a run as (event, data), until its end; survives broken connections."""
        headers: dict[str, str] = {}
        failures = 0
        while True:
            connection = None
            try:
                connection = self._connect()
                response = self._send(connection, "GET", f"/v1/runs/{run}/events", None, headers)
                if response.status != 200:
                    _answer(response)
                    return  # 204: nothing comes after the last event
                for number, event, data in _events(response):
                    headers["Last-Event-ID"], failures = number, 0
                    yield event, data
                    if event == "end":
                        return
            except (OSError, http.client.HTTPException):
                if failures == self._attempts:
                    raise
            finally:
                if connection is not None:
                    connection.close()
            failures += 1
            time.sleep(min(0.2 * failures, self._patience))

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Any other route; bytes go as a zip. `LoradError`, `NotLoradError`, at last `OSError`."""
        zipped = isinstance(body, bytes)
        sent = body if body is None or zipped else json.dumps(body).encode()
        headers = {} if method == "GET" else {"Idempotency-Key": secrets.token_urlsafe(16)}
        if sent is not None:
            headers["Content-Type"] = "application/zip" if zipped else "application/json"
        attempt = 0
        while True:
            attempt += 1
            try:
                self._connection = self._connection or self._connect()
                return _answer(self._send(self._connection, method, path, sent, headers))
            except LoradError as error:
                wait = error.retry_after if error.status in _PASSING else None
                if wait is None or wait > self._patience or attempt == self._attempts:
                    raise
            except (OSError, http.client.HTTPException):
                self.close()
                wait = min(0.2 * attempt, self._patience)
                if attempt == self._attempts:
                    raise
            time.sleep(wait)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __enter__(self) -> "Lorad":
        """Itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _connect(self) -> http.client.HTTPConnection:
        """A connection whose other end has proved to be our daemon."""
        port, key_id = self._credentials.port, self._credentials.server_key_id
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=self._timeout)
        try:
            connection.connect()
            connection.auto_open = 0  # a connection opened in secret would have proved nothing
            nonce = secrets.token_urlsafe(32)
            connection.request("GET", f"/v1/hello?nonce={nonce}&key={quote(key_id)}")
            try:
                answer = json.loads(connection.getresponse().read(4096))["proof"].encode()
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                answer = b""
            key = base64.urlsafe_b64decode(self._credentials.server_key + "==")
            message = f"lorad-hello-1\n127.0.0.1:{port}\n{nonce}".encode()
            proof = base64.urlsafe_b64encode(hmac.digest(key, message, hashlib.sha256))
            if not hmac.compare_digest(answer, proof.rstrip(b"=")):
                raise NotLoradError(NotLoradError.__doc__)
        except BaseException:
            connection.close()
            raise
        return connection

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        given = {"Authorization": f"Bearer {self._credentials.token}", **headers}
        connection.request(method, path, body, given)
        return connection.getresponse()


def _path(adapter: str) -> str:
    return f"/v1/adapters/{quote(adapter, safe='')}"


def _answer(response: http.client.HTTPResponse) -> Any:
    data = response.read()
    if response.status == 204:
        return None
    content_type = response.headers.get_content_type()
    value = json.loads(data) if content_type.endswith("json") else data
    if response.status < 400:
        return value
    after = response.headers.get("Retry-After")
    problem = value if isinstance(value, dict) else {"status": response.status}
    raise LoradError(problem, None if after is None else float(after))


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    """(id, event, data) of a text/event-stream whose data is JSON."""
    last, event, data = "", "message", []
    for line in response:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == value == "" and not line.startswith(b":"):
            if data:
                yield last, event, json.loads("\n".join(data))
            event, data = "message", []
