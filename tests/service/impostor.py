"""Someone on a port who is not the daemon: what it is told is kept, what it answers is scripted."""

import base64
import hashlib
import hmac
import json
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

from service.for_apps.lorad_client import Credentials

SERVER_KEY = b"k" * 32

Behaviour = Callable[[socket.socket, int, "Impostor"], None]


class Impostor:
    """Listens on a port and does with the n-th connection what ``behave`` says."""

    def __init__(self, behave: Behaviour, port: int = 0) -> None:
        self.heard: list[bytes] = []
        self._behave = behave
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number = len(self.heard)
            self.heard.append(b"")
            threading.Thread(target=self._one, args=(connection, number), daemon=True).start()

    def _one(self, connection: socket.socket, number: int) -> None:
        with connection:
            connection.settimeout(5)
            try:
                self._behave(connection, number, self)
                while self.hear(connection, number):  # whatever else it is told
                    pass
            except OSError:
                pass

    def hear(self, connection: socket.socket, number: int) -> bytes:
        """The next request's head and body, kept in `heard`."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65_536)
            data += piece
            self.heard[number] += piece
            if not piece:
                return data
        length = re.search(rb"content-length: (\d+)", data, re.IGNORECASE)
        wanted = data.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
        while len(data) < wanted:
            piece = connection.recv(65_536)
            data += piece
            self.heard[number] += piece
            if not piece:
                break
        return data

    def credentials(self) -> Credentials:
        key = base64.urlsafe_b64encode(SERVER_KEY).decode().rstrip("=")
        return Credentials(self.port, "mail", "key-1", "token-of-the-app", key)

    def __enter__(self) -> "Impostor":
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()


def http_answer(body: Any, status: str = "200 OK", *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + data


def true_proof(request: bytes, port: int) -> dict[str, str]:
    found = re.search(rb"nonce=([A-Za-z0-9_-]+)", request)
    assert found is not None
    message = f"lorad-hello-1\n127.0.0.1:{port}\n".encode() + found[1]
    proof = hmac.digest(SERVER_KEY, message, hashlib.sha256)
    return {"proof": base64.urlsafe_b64encode(proof).decode().rstrip("=")}
