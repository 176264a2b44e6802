"""What kills, crashes and hangs do to a run: its counts, when it goes on, and when it fails.

    kill     on Android the normal case, so it never fails a run. Three in a row without a new
             checkpoint halve its checkpoint interval and its memory budget, for the rest of the run
    crash,   of native code or by an exception, or no sign of life: three at one step fail the run;
    hang     but one for which an engine was demoted begins the count anew, since what is tried next
             is another engine, and an engine is demoted only once
    stop     asked for by somebody else than us: counts nothing

Each waits before it goes on, longer with every one in a row.
"""

from dataclasses import replace

from service.runs.backoff import goes_on, goes_on_at
from service.runs.run_end import RunEnd, at_step
from storage.tables import Run

KILLS_TO_HALVE = 3
MOST_HALVINGS = 4
CRASHES_TO_FAIL = 3


def found_checkpoint(run: Run, step: int | None) -> None:
    """Take in the step of the newest checkpoint; a new one ends a row of kills."""
    if step is not None and (run.checkpoint_step is None or step > run.checkpoint_step):
        run.kills = 0
    run.checkpoint_step = step


def bear(run: Run, end: RunEnd, now: int, retry_seconds: float) -> RunEnd:
    """Count the setback of ``end``, if it is one, in the run's row, and say what comes of it.

    Sets ``not_before`` where the run is to wait. ``now`` is in ms since 1970.
    """
    times = 1
    if end.setback == "kill":
        run.kills += 1
        times = run.kills
        end = _halve(run, end)
    elif end.setback in ("crash", "hang") and end.demoted is not None:
        run.crashes, run.crash_step = 0, None
        words = f"crashed {at_step(end.step)}: {end.reason}; {end.demoted} is not used any more"
        end = replace(end, reason=words)
    elif end.setback in ("crash", "hang"):
        times = _count_crash(run, end.step or 0)
        if times >= CRASHES_TO_FAIL:
            return RunEnd("failed", f"three times {at_step(end.step)}: {end.reason}")
        words = f"crashed {at_step(end.step)}, {_ORDINALS[times]} time: {end.reason}"
        end = replace(end, reason=words)
    if not end.backs_off or run.wanted in ("pause", "cancel"):
        return end
    run.not_before = goes_on_at(now, retry_seconds, times)
    return replace(end, reason=f"{end.reason}; {goes_on(run.checkpoint_step, run.not_before)}")


def slowed(run: Run) -> str:
    """What three kills in a row have led to, in words."""
    return (
        f"killed {KILLS_TO_HALVE} times in a row without a new checkpoint, so from now on with "
        f"1/{2**run.halvings} of the checkpoint interval and of the memory budget"
    )


_ORDINALS = {1: "the first", 2: "the second"}


def _count_crash(run: Run, step: int) -> int:
    run.crashes = run.crashes + 1 if run.crash_step == step else 1
    run.crash_step = step
    return run.crashes


def _halve(run: Run, end: RunEnd) -> RunEnd:
    if run.kills < KILLS_TO_HALVE or run.halvings >= MOST_HALVINGS:
        return end
    run.halvings, run.kills = run.halvings + 1, 0
    return replace(end, reason=f"{end.reason}; {slowed(run)}")
