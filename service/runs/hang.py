"""Telling a worker that hangs from one that is slow, rests, or whose phone sleeps.

A sign of life is anything that the worker says. While it trains, a sign is late after ten times
the median time that a step computes, stretched by the share of the time that it may work; before
there are such times, and while it loads or measures, after the long while of `LOADING_FLOORS`. The
self-tests of an engine, of which it announces each, have a time limit that it sees to itself.

Silence is counted in looks, one a second, not read off a clock: a look comes only while the daemon
itself runs. So neither a suspended phone (whose monotonic clock stands still) nor an app that
Android has frozen, daemon and worker together (whose monotonic clock goes on), is a hang.
"""

import threading
from collections import deque
from statistics import median

from service.runs.worker_events import Event, Phase, Started, Step

TIMES_THE_MEDIAN = 10
LOADING_FLOORS = 15
TESTING_SECONDS = 180.0
"""More than the worker gives to one self-test of an engine (`npu.doctor.SECONDS`)."""
STEPS_KEPT = 101
LEAST_STEPS = 3
"""Steps to have heard of before their median is trusted."""


class HangWatch:
    """Watches one worker. Safe to use from several threads."""

    def __init__(self, floor: float) -> None:
        """Never call less than ``floor`` seconds of silence a hang."""
        self._floor = floor
        self._guard = threading.Lock()
        self._seconds: deque[float] = deque(maxlen=STEPS_KEPT)
        self._training = self._testing = False
        self._duty = self._least_duty = 1.0
        self._silent = 0.0
        self._listening = True
        self._answering = False

    def heard(self, event: Event) -> None:
        """Take in what the worker has said."""
        with self._guard:
            match event:
                case Started():
                    self._training = self._testing = False
                case Phase():
                    self._training = event.phase == "training"
                    self._testing = event.phase == "testing_engine"
                case Step():
                    self._training = True
                    self._seconds.append(event.seconds)
                case _:
                    pass
            self._silent = 0.0
            self._least_duty = self._duty

    def listen(self, listening: bool) -> None:
        """Whether anybody listens now: what waits in the pipe meanwhile is no silence."""
        with self._guard:
            self._listening = listening

    def answer(self, answering: bool) -> None:
        """Whether a prediction was asked of the worker: its time is not that of a step."""
        with self._guard:
            self._answering = answering

    def set_duty(self, duty: float) -> None:
        """From now on the worker computes this share of the time, and rests the other."""
        with self._guard:
            self._duty = duty
            self._least_duty = min(self._least_duty, duty)

    def limit(self) -> float:
        """How many seconds the worker may be silent now."""
        with self._guard:
            return self._limit()

    def look(self, seconds: float) -> str | None:
        """Count ``seconds`` since the last look; in words why it hangs, if it does."""
        with self._guard:
            if not self._listening or self._answering:
                return None
            self._silent += seconds
            if self._silent < self._limit():
                return None
            typical = (
                f"; a step takes {median(self._seconds):.1f} s as a rule"
                if self._training and self._seconds
                else ""
            )
            return f"no sign of life for {self._silent:.0f} s{typical}; it was killed"

    def _limit(self) -> float:
        if self._testing:
            return max(self._floor * LOADING_FLOORS, TESTING_SECONDS)
        if not self._training or len(self._seconds) < LEAST_STEPS:
            return self._floor * LOADING_FLOORS
        return max(self._floor, TIMES_THE_MEDIAN * median(self._seconds) / self._least_duty)
