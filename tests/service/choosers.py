"""Choosers for supervisors that are tested without a night."""

from sqlmodel import Session

from service.runs.chooser import Choice
from storage import runs
from storage.tables import Run


class OldestFirst:
    """Chooses whatever waits, the oldest first, whatever the moment."""

    def choose(self, session: Session) -> Choice:
        waiting = runs.waiting(session)
        return Choice(run_id=waiting[0].id) if waiting else Choice()

    def make_run(self, session: Session, adapter_id: int) -> Run:
        raise AssertionError("it names no adapter")
