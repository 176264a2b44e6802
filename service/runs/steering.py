"""Pausing, resuming and cancelling a run: what each does in every state.

    state            pause         resume         cancel
    queued           paused        same           cancelled
    running          ask pause     same           ask cancel
    running/pause    same          ask resume     ask cancel
    running/resume   ask pause     same           ask cancel
    running/cancel   refused       refused        same
    paused           same          queued         cancelled
    interrupted      paused        queued         cancelled
    completed        refused       refused        refused
    failed           refused       refused        refused
    cancelled        refused       refused        same

``running/pause`` is a running run of which a pause is ``wanted``. *ask*: the worker is asked to
stop, and what is wanted is done once it has; a worker that doesn't stop in ``stop_seconds`` is
killed. A run that completes before its worker stops is completed, whatever was wanted. If the
daemon dies in between, the next one does what was wanted at its start, except that a run to be
resumed is interrupted, like every run that a daemon's death ended.
"""

from dataclasses import dataclass
from typing import Literal, cast

from sqlmodel import Session

from service.runs.run_end import RunEnd
from storage import runs
from storage.tables import Run, RunStatus, Wanted

Verb = Literal["pause", "resume", "cancel"]
VERBS: tuple[Verb, ...] = ("pause", "resume", "cancel")

Outcome = Literal[
    "same", "refused", "paused", "queued", "cancelled", "ask pause", "ask resume", "ask cancel"
]

_ASKED = "ask "

TABLE: dict[tuple[RunStatus, Wanted | None], tuple[Outcome, Outcome, Outcome]] = {
    ("queued", None): ("paused", "same", "cancelled"),
    ("running", None): ("ask pause", "same", "ask cancel"),
    ("running", "pause"): ("same", "ask resume", "ask cancel"),
    ("running", "resume"): ("ask pause", "same", "ask cancel"),
    ("running", "cancel"): ("refused", "refused", "same"),
    ("paused", None): ("same", "queued", "cancelled"),
    ("interrupted", None): ("paused", "queued", "cancelled"),
    ("completed", None): ("refused", "refused", "refused"),
    ("failed", None): ("refused", "refused", "refused"),
    ("cancelled", None): ("refused", "refused", "same"),
}
"""The outcomes of pause, resume and cancel by state."""


class SteeringError(Exception):
    """The run's state doesn't allow what was asked; the message says which and what to do."""


@dataclass(frozen=True)
class Steered:
    """What a verb did to a run."""

    outcome: Outcome

    @property
    def changed(self) -> bool:
        """Whether the run's row is another one now."""
        return self.outcome != "same"

    @property
    def stops_worker(self) -> bool:
        """Whether the run's worker is to be asked to stop."""
        return self.outcome in ("ask pause", "ask cancel")


def steer(session: Session, run: Run, verb: Verb, asked_at: str) -> Steered:
    """Change the row as the table says, in the writer's ``session``; ``asked_at`` is the time.

    Raises:
        SteeringError: the table says refused.
    """
    outcome = TABLE[run.status, run.wanted][VERBS.index(verb)]
    if outcome == "refused":
        raise SteeringError(_refusal(run, verb))
    if outcome.startswith(_ASKED):
        run.wanted = cast(Wanted, outcome.removeprefix(_ASKED))
        run.error = None if run.wanted == "resume" else _asked(verb, asked_at)
    elif outcome == "queued":
        runs.requeue(session, run)
    elif outcome != "same":
        end = cast(RunStatus, outcome)
        runs.end(session, run, end, f"{end} at step {run.step}: {_asked(verb, asked_at)}")
    session.add(run)
    return Steered(outcome)


def as_wanted(run: Run, end: RunEnd, *, daemon_ends: bool) -> RunEnd:
    """The end of a running run, given how its worker or its daemon ended and what was wanted.

    A failure stays one, also of a run to be paused: its cause would come again.
    """
    at = f"at step {run.step}: {run.error}"
    if run.wanted == "cancel":
        return RunEnd("cancelled", f"cancelled {at}")
    if end.status in ("interrupted", "queued") and run.wanted == "pause":
        return RunEnd("paused", f"paused {at}")
    if end.status == "interrupted" and run.wanted == "resume" and not daemon_ends:
        return RunEnd("queued", None)
    return end


def _asked(verb: Verb, at: str) -> str:
    return f"{verb} asked for at {at}"


def _refusal(run: Run, verb: Verb) -> str:
    if run.status == "running":
        return f"run {run.id} is being cancelled, so {verb} comes too late; start a new run"
    return f"run {run.id} is {run.status} already, so {verb} can't change it; start a new run"
