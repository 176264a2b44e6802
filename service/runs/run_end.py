"""What the end of a worker process means for its run, in words a person can act on.

    exit of the worker               the run                          counts as
    0 without a whole version        failed
    1, the cause will come again     failed                           (`again` false)
    1, the cause may pass            interrupted, or failed           crash
    3 worker.lock is held            queued
    75 stopped, with a checkpoint    interrupted                      stop
    76 full disk, no checkpoint      interrupted                      stop
    SIGKILL                          interrupted                      kill
    SIGKILL by us, for it hung       interrupted, or failed           hang
    SIGTERM, SIGINT, SIGHUP          interrupted                      stop
    any other signal or code         interrupted, or failed           crash

What was asked for is no setback: a pause, a closed gate, the daemon's own end.
"""

import signal
from dataclasses import dataclass
from typing import Literal

from service.runs.backoff import goes_on
from service.runs.progress import Progress
from storage.tables import RunStatus

FINISHED = 0
FAILED = 1
LOCK_HELD = 3
STOPPED = 75
DISK_FULL = 76
KILLED = -signal.SIGKILL

_REQUESTS = tuple(-number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))

Setback = Literal["kill", "crash", "hang", "stop"]


@dataclass(frozen=True)
class RunEnd:
    """The run's new status, with the reason where there is one.

    ``setback`` is what the run's counts are told; ``step`` the last one heard of, None: it was
    still loading. With ``backs_off`` the run goes on only after a while, which its reason is to say
    yet. ``demoted``: the engine that was to blame and isn't opened any more.
    """

    status: RunStatus
    reason: str | None
    setback: Setback | None = None
    step: int | None = None
    backs_off: bool = False
    demoted: str | None = None


@dataclass(frozen=True)
class Circumstances:
    """What the daemon knows of a worker's end besides its exit code.

    ``asked``: the worker was asked to stop; ``because`` says why where the daemon itself wanted it.
    ``hung`` says for how long it was silent before it was killed for that. ``checkpoint`` is the
    step of the newest one. ``log`` is where the worker's own log lies.
    """

    log: str
    checkpoint: int | None = None
    asked: bool = False
    daemon_stopping: bool = False
    because: str | None = None
    hung: str | None = None


def run_end(exit_code: int, progress: Progress, around: Circumstances) -> RunEnd:
    """Judge a worker's exit code (negative: the signal that ended it).

    Code 0 is judged as if no version had come of it: where one has, the run is completed already.
    """
    step = progress.step
    if exit_code == LOCK_HELD:
        return RunEnd("queued", None)
    if exit_code == FINISHED:
        reason = f"the worker ended well but left no whole version; see {around.log}"
        return RunEnd("failed", reason)
    if exit_code == KILLED and around.hung is not None:
        return RunEnd("interrupted", f"hung: {around.hung}", "hang", step, backs_off=True)
    if exit_code == KILLED:
        return _asked(f"killed by SIGKILL {at_step(step)}", "kill", step, around)
    if exit_code in (STOPPED, DISK_FULL) or exit_code in _REQUESTS:
        return _asked(_stop(exit_code, progress), "stop", step, around)
    if exit_code < 0:
        reason = f"{_signal(-exit_code)}; see {around.log}"
    elif progress.failed_because is None:
        reason = f"exit code {exit_code} without a reason; see {around.log}"
    elif progress.fails_again:
        return RunEnd("failed", progress.failed_because)
    else:
        reason = progress.failed_because
    return RunEnd("interrupted", reason, "crash", step, backs_off=True)


def at_step(step: int | None) -> str:
    """The last step heard of, in words."""
    return "while loading" if step is None else f"at step {step}"


def _asked(words: str, setback: Setback, step: int | None, around: Circumstances) -> RunEnd:
    """An end that is no setback of its own where it was asked for.

    One that had to be killed, since it didn't stop in time, still counts as killed: a checkpoint
    interval that is shorter helps it.
    """
    counted = setback if setback == "kill" else None
    if around.because is not None:
        return RunEnd("interrupted", around.because, counted, step)
    if around.daemon_stopping:
        late = "" if counted is None else ", and it was killed since it took too long to stop"
        words = f"the daemon was stopped {at_step(step)}{late}"
    elif not around.asked:
        return RunEnd("interrupted", words, setback, step, backs_off=True)
    return RunEnd("interrupted", f"{words}; {goes_on(around.checkpoint)}", counted, step)


def _stop(exit_code: int, progress: Progress) -> str:
    place = at_step(progress.step)
    if exit_code < 0:
        return f"stopped by {_signal(-exit_code)} {place}"
    if exit_code == DISK_FULL:
        return f"stopped {place}: the disk is full and no checkpoint could be written"
    why = progress.stopped_because
    if why is None or why.startswith("SIG"):
        return f"stopped by {why or 'a request'} {place}"
    return f"stopped {place}: {why}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
