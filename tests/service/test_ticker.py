"""The ticker: regular, at once when asked, and whatever is done to the wall clock."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

import apscheduler.schedulers.base
import apscheduler.triggers.interval
import pytest

from service.nights.ticker import Ticker
from tests.service.daemon import until


class Looks:
    """What the ticker calls; notes when."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.upcoming: datetime | None = None
        self.hold = threading.Event()
        self.hold.set()
        self.error: Exception | None = None

    def __call__(self) -> datetime | None:
        self.at.append(time.monotonic())
        self.hold.wait(30)
        if self.error is not None:
            raise self.error
        return self.upcoming


@contextmanager
def ticking(looks: Looks, tick: float = 3600, patience: float = 3600) -> Iterator[Ticker]:
    ticker = Ticker(looks, tick_seconds=tick, patience_seconds=patience)
    ticker.start()
    try:
        yield ticker
    finally:
        ticker.stop()


def test_it_looks_at_once_and_then_at_every_tick() -> None:
    looks = Looks()
    with ticking(looks, tick=0.1):
        until(lambda: len(looks.at) >= 4)
    seen = len(looks.at)
    time.sleep(0.3)
    assert len(looks.at) == seen, "it has stopped"


def test_a_nudge_during_a_look_is_not_lost_and_does_not_wait() -> None:
    looks = Looks()
    looks.hold.clear()
    with ticking(looks) as ticker:
        until(lambda: len(looks.at) == 1)
        began = time.monotonic()
        for _ in range(100):
            ticker.nudge()
        assert time.monotonic() - began < 10
        assert len(looks.at) == 1, "one look at a time"
        looks.hold.set()
        until(lambda: len(looks.at) == 2)
        time.sleep(0.2)
        assert len(looks.at) == 2, "a hundred nudges are one look"


def test_a_moment_that_a_look_names_brings_the_next_one_forward() -> None:
    looks = Looks()
    began = time.monotonic()
    looks.upcoming = datetime.now(UTC) + timedelta(seconds=0.3)
    with ticking(looks):
        until(lambda: len(looks.at) == 2)
        assert looks.at[1] - began >= 0.25


def test_an_error_in_a_look_ends_nothing() -> None:
    looks = Looks()
    looks.error = RuntimeError("private text")
    with ticking(looks, tick=0.05):
        until(lambda: len(looks.at) >= 3)


def test_it_does_not_wait_for_a_look_that_hangs() -> None:
    looks = Looks()
    looks.hold.clear()
    with ticking(looks) as ticker:
        until(lambda: len(looks.at) == 1)
        began = time.monotonic()
        ticker.stop()
        assert time.monotonic() - began < 20
        looks.hold.set()
        ticker._scheduler.start()  # the context manager stops it once more


def test_it_goes_on_when_the_wall_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shift = timedelta(0)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + shift

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Clock)
    monkeypatch.setattr(apscheduler.triggers.interval, "datetime", Clock)
    looks = Looks()
    with ticking(looks, tick=0.1, patience=1.0):
        until(lambda: len(looks.at) >= 3)
        shift = timedelta(hours=-2)
        before = len(looks.at)
        until(lambda: "the wall clock was set back" in caplog.text, 10)
        until(lambda: len(looks.at) >= before + 5, 10)
    gaps = [later - earlier for earlier, later in pairwise(looks.at[before - 1 :])]
    assert max(gaps) >= 0.9, "APScheduler alone would be silent for two hours"
    assert caplog.text.count("the wall clock was set back") == 1
