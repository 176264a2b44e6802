"""What the end of a worker process means for its run, in words a person can act on."""

import signal
from dataclasses import dataclass

from service.runs.progress import Progress
from storage.tables import RunStatus

FINISHED = 0
FAILED = 1
LOCK_HELD = 3
STOPPED = 75

_AGAIN = "trigger again to go on from its last checkpoint"
_FROM_THE_START = "trigger again to start it over, it had written no checkpoint yet"


@dataclass(frozen=True)
class RunEnd:
    """The run's new status, with the reason where there is one."""

    status: RunStatus
    reason: str | None


def run_end(
    exit_code: int, progress: Progress, *, has_checkpoint: bool, daemon_stopping: bool, log: str
) -> RunEnd:
    """Judge a worker's exit code (negative: the signal that killed it).

    Code 0 is judged as if no version had come of it: where one has, the run is completed already.
    ``has_checkpoint`` tells whether the run has any to go on from; ``log`` is where the worker's
    own log lies, for messages.
    """
    again = _AGAIN if has_checkpoint else _FROM_THE_START
    if exit_code == LOCK_HELD:
        return RunEnd("queued", None)
    if exit_code == STOPPED:
        who = "the daemon was stopped" if daemon_stopping else "stopped"
        why = "" if daemon_stopping else f" by {progress.stopped_because or 'a request'}"
        return RunEnd("interrupted", f"{who}{why}{_at(progress)}; {again}")
    if exit_code < 0:
        return RunEnd("interrupted", f"killed by {_signal(-exit_code)}{_at(progress)}; {again}")
    if exit_code == FINISHED:
        return RunEnd("failed", f"the worker ended well but left no whole version; see {log}")
    if progress.failed_because is not None:
        return RunEnd("failed", progress.failed_because)
    return RunEnd(
        "failed", f"the worker ended with exit code {exit_code} and gave no reason; see {log}"
    )


def _at(progress: Progress) -> str:
    return "" if progress.step is None else f" at step {progress.step}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
