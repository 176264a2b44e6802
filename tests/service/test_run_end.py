"""How the end of a worker is judged, for every way in which one can end."""

import signal

import pytest

from service.runs.progress import Progress
from service.runs.run_end import Circumstances, RunEnd, run_end
from service.runs.worker_events import parse

STEP = (
    b'{"event":"step","run":1,"step":41,"total":99,"epoch":0.1,"loss":1.0,"learning_rate":0.001,'
    b'"seconds":0.5}'
)


def judged(code: int, *lines: bytes, **around: object) -> RunEnd:
    progress = Progress([])
    for line in (STEP, *lines):
        progress.take(parse(line))
    return run_end(code, progress, Circumstances(log="LOG", checkpoint=40, **around))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status", "setback", "reason"),
    [
        (0, "failed", None, "the worker ended well but left no whole version; see LOG"),
        (1, "interrupted", "crash", "exit code 1 without a reason; see LOG"),
        (2, "interrupted", "crash", "exit code 2 without a reason; see LOG"),
        (3, "queued", None, None),
        (75, "interrupted", "stop", "stopped by a request at step 41"),
        (
            76,
            "interrupted",
            "stop",
            "stopped at step 41: the disk is full and no checkpoint could be written",
        ),
        (255, "interrupted", "crash", "exit code 255 without a reason; see LOG"),
        (-signal.SIGKILL, "interrupted", "kill", "killed by SIGKILL at step 41"),
        (-signal.SIGTERM, "interrupted", "stop", "stopped by SIGTERM at step 41"),
        (-signal.SIGHUP, "interrupted", "stop", "stopped by SIGHUP at step 41"),
        (-signal.SIGSEGV, "interrupted", "crash", "SIGSEGV; see LOG"),
        (-signal.SIGABRT, "interrupted", "crash", "SIGABRT; see LOG"),
        (-signal.SIGBUS, "interrupted", "crash", "SIGBUS; see LOG"),
        (-signal.SIGILL, "interrupted", "crash", "SIGILL; see LOG"),
        (-signal.SIGFPE, "interrupted", "crash", "SIGFPE; see LOG"),
        (-signal.SIGSYS, "interrupted", "crash", "SIGSYS; see LOG"),
        (-64, "interrupted", "crash", "SIGRTMAX; see LOG"),
        (-70, "interrupted", "crash", "signal 70; see LOG"),
    ],
)
def test_every_exit_has_its_meaning(
    code: int, status: str, setback: str | None, reason: str | None
) -> None:
    end = judged(code)
    assert (end.status, end.setback, end.reason) == (status, setback, reason)
    assert end.backs_off == (setback is not None)
    assert end.step == (None if setback is None else 41)


def test_the_worker_says_whether_another_try_is_of_use() -> None:
    failed = b'{"event":"failed","run":1,"step":41,"error":"why"%s}'
    assert judged(1, failed % b"") == RunEnd("failed", "why")
    assert judged(1, failed % b',"again":false') == RunEnd("failed", "why")
    again = RunEnd("interrupted", "why", "crash", 41, backs_off=True)
    assert judged(1, failed % b',"again":true') == again


def test_a_stop_has_the_reason_that_the_worker_gives() -> None:
    stopped = b'{"event":"stopped","run":1,"step":42,"reason":"%s"}'
    assert judged(75, stopped % b"SIGTERM").reason == "stopped by SIGTERM at step 42"
    full = judged(75, stopped % b"the disk is full")
    assert (full.reason, full.setback) == ("stopped at step 42: the disk is full", "stop")


@pytest.mark.parametrize("code", [75, 76, -signal.SIGTERM, -signal.SIGKILL])
def test_what_the_daemon_wanted_is_no_setback_with_a_wait(code: int) -> None:
    counted = "kill" if code == -signal.SIGKILL else None
    because = judged(code, asked=True, because="the window ended")
    assert because == RunEnd("interrupted", "the window ended", counted, 41)
    leaving = judged(code, asked=True, daemon_stopping=True)
    assert (leaving.status, leaving.setback, leaving.backs_off) == ("interrupted", counted, False)
    assert str(leaving.reason).startswith("the daemon was stopped at step 41")
    assert str(leaving.reason).endswith("; goes on by itself from step 40")
    assert ("took too long" in str(leaving.reason)) == (counted is not None)
    asked = judged(code, asked=True)
    assert (asked.setback, asked.backs_off) == (counted, False)


@pytest.mark.parametrize("asked", [True, False])
def test_a_crash_is_one_whatever_was_asked(asked: bool) -> None:
    end = judged(-signal.SIGSEGV, asked=asked, because="the window ended" if asked else None)
    assert (end.setback, end.backs_off) == ("crash", True)


def test_killed_for_hanging_is_a_hang_and_ended_before_the_kill_is_not() -> None:
    hung = judged(-signal.SIGKILL, hung="nothing for 61 s")
    assert (hung.setback, hung.reason) == ("hang", "hung: nothing for 61 s")
    assert judged(0, hung="nothing for 61 s").status == "failed"


def test_a_worker_that_said_nothing_was_loading() -> None:
    end = run_end(-9, Progress([]), Circumstances(log="LOG"))
    assert (end.reason, end.step) == ("killed by SIGKILL while loading", None)
