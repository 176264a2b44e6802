"""How the daemon proves to a client that it is the one the client was paired with.

Any app may listen on the daemon's port while the daemon is not running. So a client asks first,
on the connection that it will go on with:

    master      32 random bytes in the file ``server_key`` of the home, known to the daemon alone
    server key  HMAC-SHA256(master, "lorad server key " + key id), given to the client when paired
    proof       HMAC-SHA256(server key, "lorad-hello-1" LF "127.0.0.1:PORT" LF nonce)

The nonce is the client's own random one, exactly as it stands in the query. PORT is the daemon's,
in decimal, and the client compares with the port that *it* dialled: somebody on another port who
passes the question on to the daemon gets a proof that names the daemon's port, not his own. For
that the client dials 127.0.0.1 itself, never ``localhost``, which may be ::1 and somebody else's.

A key id that belongs to nobody, or no longer, is answered under a key that nobody has. So nothing
tells who exists, and a server key that was replaced proves nothing any more.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

from service.secret_file import SecretFileError, secret

_MASTER_BYTES = 32


def master_key(path: Path) -> bytes:
    """The master key in the file, which is made if there is none.

    Raises:
        SecretFileError: the file holds something else.
    """
    key = secret(path, lambda: secrets.token_bytes(_MASTER_BYTES))
    if len(key) != _MASTER_BYTES:
        raise SecretFileError(
            f"{path} should hold {_MASTER_BYTES} bytes and holds {len(key)}; delete it, start "
            "again, and pair every app anew"
        )
    return key


class ServerKeys:
    """The server keys of the daemon that listens on ``port``."""

    def __init__(self, master: bytes, port: int) -> None:
        """Derive from this master key."""
        self._master = master
        self._port = port

    def of(self, key_id: str) -> bytes:
        """The server key of that id: 32 bytes."""
        return _hmac(self._master, f"lorad server key {key_id}")

    def proof(self, key_id: str, nonce: str, *, known: bool) -> bytes:
        """The answer to a client's question; ``known``: the id is one of a client's today."""
        key = self.of(key_id) if known else _hmac(self._master, f"nobody's key {key_id}")
        return _hmac(key, f"lorad-hello-1\n127.0.0.1:{self._port}\n{nonce}")


def _hmac(key: bytes, message: str) -> bytes:
    return hmac.digest(key, message.encode(), hashlib.sha256)
