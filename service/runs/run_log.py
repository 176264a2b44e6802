"""What becomes of a run, in the history and in the feed."""

from typing import Any, Literal

from sqlmodel import Session

from service.runs.run_feed import END, RunFeed
from service.views import setbacks, timestamp
from storage import adapters, history
from storage.tables import UNFINISHED, Run, RunStatus

Change = Literal[
    "queued", "started", "resumed", "paused", "interrupted", "cancelled", "completed", "failed"
]

_CHANGES: dict[RunStatus, Change] = {"running": "started"}


def note(session: Session, run: Run, change: Change | None = None) -> None:
    """Put the run's new state into the history, in the transaction that changes it.

    ``change`` is told by the run's status where that says enough.
    """
    change = change or _CHANGES.get(run.status) or run.status  # type: ignore[assignment]
    reason = "" if run.error is None else f": {run.error}"
    note_words(session, run, f"run-{change}", f"run {run.id} {change}{reason}")


def note_steered(session: Session, run: Run) -> None:
    """Put what was asked of the run into the history: what it is now, or what is wanted of it."""
    if run.wanted is not None:
        note_words(session, run, f"run-{run.wanted}-asked", f"run {run.id}: {run.wanted} asked for")
    else:
        note(session, run, "resumed" if run.status == "queued" else None)


def note_words(session: Session, run: Run, kind: str, message: str) -> None:
    """Put an entry about the run into the history."""
    adapter = adapters.by_id(session, run.adapter_id)
    if adapter is not None:  # else it is being deleted, and nothing of it shall stay
        history.add(session, kind, message, adapter.client_id, adapter.name, run.id)


def tell(feed: RunFeed, run: Run) -> None:
    """Tell those who watch the run its state; call it after the commit."""
    state: dict[str, Any] = {
        "status": run.status,
        "wanted": run.wanted,
        "error": run.error,
        "goes_on_at": None if run.not_before is None else timestamp(run.not_before),
        "setbacks": setbacks(run).model_dump(),
    }
    feed.publish(run.id, "status", state, stored=True)
    if run.status not in UNFINISHED:
        feed.publish(run.id, END, {}, stored=True)
