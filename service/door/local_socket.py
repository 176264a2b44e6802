"""A Unix socket beside the port: the same app, and nobody but this user can reach or squat it."""

import logging
import socket
import stat
from pathlib import Path

_MODE = 0o600
_MOST_PATH_BYTES = 107
"""What Linux leaves for a socket's path, without the NUL at its end."""

_log = logging.getLogger("lorad.listener")


class LocalSocketError(Exception):
    """The socket can't be had; the message says why and what to do."""


class LocalSocket:
    """A bound stream socket at ``path`` (mode 0600), which doesn't listen yet.

    Only the daemon that holds the home's lock makes one, so what an earlier daemon left there is
    put away. A token is asked for as on the port.

    Raises:
        LocalSocketError: the path is too long, is no socket, or somebody answers there.
    """

    def __init__(self, path: Path) -> None:
        """Bind."""
        self.path = path
        if len(str(path).encode()) > _MOST_PATH_BYTES:
            raise LocalSocketError(
                f"expected a path of at most {_MOST_PATH_BYTES} bytes for the socket, found "
                f"{path}; choose a shorter one with LORAD_SOCKET"
            )
        _put_away(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.bind(str(path))
            path.chmod(_MODE)
        except OSError as error:
            self.socket.close()
            raise LocalSocketError(
                f"the socket {path} can't be had ({error.strerror}); choose another with "
                "LORAD_SOCKET, or none: LORAD_SOCKET=none"
            ) from None

    def close(self) -> None:
        """Give the path back."""
        self.socket.close()
        self.path.unlink(missing_ok=True)


def local_socket(asked: str, home_socket: Path) -> LocalSocket | None:
    """The socket that the setting asks for: a path, ``none``, or empty for the home's own.

    Without the home's own the port still answers, so that one is left out where it can't be had.

    Raises:
        LocalSocketError: the path that was asked for can't be had.
    """
    if asked == "none":
        return None
    if asked:
        return LocalSocket(Path(asked).expanduser().absolute())
    try:
        return LocalSocket(home_socket)
    except LocalSocketError as error:
        _log.warning("no Unix socket: %s", error)
        return None


def _put_away(path: Path) -> None:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LocalSocketError(f"the socket {path} can't be had: {error.strerror}") from None
    if not is_socket:
        raise LocalSocketError(
            f"expected nothing or an old socket at {path}, found something else; move it away, or "
            "choose another path with LORAD_SOCKET"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise LocalSocketError(
        f"another program answers at the socket {path}; choose another with LORAD_SOCKET"
    )
