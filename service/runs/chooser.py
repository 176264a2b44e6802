"""Which run is trained next: the supervisor's question, answered by `service.nights`."""

from dataclasses import dataclass
from typing import Protocol

from sqlmodel import Session

from storage.tables import Run


@dataclass(frozen=True)
class Choice:
    """A run to start, or an adapter to make one for; else why none of those waiting is started.

    All three are None where nothing waits.
    """

    run_id: int | None = None
    adapter_id: int | None = None
    because: str | None = None


class Chooser(Protocol):
    """Looks at what waits and at what the moment allows."""

    def choose(self, session: Session) -> Choice:
        """What to train now; only reads."""
        ...

    def make_run(self, session: Session, adapter_id: int) -> Run:
        """The new run of an adapter that `choose` named, queued in the writer's ``session``."""
        ...
