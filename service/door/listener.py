"""The daemon's address, and keeping other apps off the addresses that look like it."""

import errno
import logging
import socket

ADDRESS = "127.0.0.1"

_log = logging.getLogger("lorad.listener")


class PortError(Exception):
    """The port can't be had; the message says why and what to do."""


class Listener:
    """A bound socket for ``port`` of 127.0.0.1 (0: a free one), which doesn't listen yet.

    The same port of ::1 is held too and never listens. Else an app could listen there: whoever
    dials ``localhost`` may reach ::1 first, and that app would pass `hello` on to the true daemon,
    whose proof names the right port.

    Raises:
        PortError: somebody has the port.
    """

    def __init__(self, port: int) -> None:
        """Bind."""
        # asyncio turns Nagle's delay off (40 ms an answer) only where the protocol is named.
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # Only lets a restarted daemon have its port back at once; a live listener still keeps it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((ADDRESS, port))
        except OSError as error:
            self.socket.close()
            raise PortError(
                f"port {port} on {ADDRESS} can't be had ({error.strerror}); stop whoever has it, "
                "or choose another with --port, 0 for a free one"
            ) from None
        self.port: int = self.socket.getsockname()[1]
        self._placeholder = _hold(self.port)

    def close(self) -> None:
        """Give both addresses back."""
        self.socket.close()
        if self._placeholder is not None:
            self._placeholder.close()


def _hold(port: int) -> socket.socket | None:
    """A socket that keeps ::1 from others; None where there is no IPv6, or somebody has it."""
    try:
        held = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        held.bind(("::1", port))
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            _log.warning(
                "another program has port %d of ::1; apps must dial %s, never localhost",
                port,
                ADDRESS,
            )
        return None
    return held
