"""Sessions that are opened when first used."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from npu.errors import EngineError, ProductError
from npu.sessions import Session

Spec = TypeVar("Spec", bound=Hashable)


class OpenedOnce(Generic[Spec]):
    """One session for each graph asked for; a graph that failed to open is not tried again."""

    def __init__(self, open_session: Callable[[Spec], Session]) -> None:
        """Open with `open_session`, which may raise EngineError."""
        self._open_session = open_session
        self._sessions: dict[Spec, Session | EngineError] = {}

    def __call__(self, spec: Spec) -> Session:
        """The session of `spec`. Raises ProductError."""
        if spec not in self._sessions:
            try:
                self._sessions[spec] = self._open_session(spec)
            except EngineError as error:
                self._sessions[spec] = error
        session = self._sessions[spec]
        if isinstance(session, EngineError):
            raise ProductError(str(session)) from session
        return session

    def clear(self) -> None:
        """Let go of the sessions."""
        self._sessions.clear()
