"""What happens in runs, for those who watch: the last events of each, in order, under ids.

    supervisor, routes ──publish──▶ ring of a run ◀──after── a stream, at its own pace
                                         └──wake──▶ streams that wait for more

An event's data are new values of fields of the run, so applying one twice does no harm. A stream
that falls behind the ring begins again from the run's row; it never makes the ring longer. Ids are
``<boot>-<number>``: ``boot`` changes with every start of the daemon, numbers count over all runs.
"""

import asyncio
import contextlib
import json
import secrets
import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.metrics.work import Work

RING_EVENTS = 2000
RINGS_KEPT = 4
"""Runs whose events are kept although nobody watches them: the last ones."""

STREAMS_MOST = 32
STREAMS_A_CLIENT = 8

END = "end"
"""The name of a run's last event."""


class TooManyStreamsError(Exception):
    """The message says whose limit it is."""


@dataclass(frozen=True)
class FeedEvent:
    """One event: its number, its name, its data as JSON."""

    number: int
    name: str
    data: str


@dataclass
class _Ring:
    base: int  # all events of the run after this number are in the ring
    stored: int  # the run's row tells at least what the events up to this number tell
    events: deque[FeedEvent] = field(default_factory=deque)
    watches: set["Watch"] = field(default_factory=set)


class Watch:
    """A stream's place in the feed; it belongs to the event loop that made it."""

    def __init__(self, feed: "RunFeed", run_id: int, sender: int, ring: _Ring) -> None:
        """`RunFeed.watch` makes these."""
        self.run_id = run_id
        self.sender = sender
        self.ring = ring
        self._feed = feed
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """There is news. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._news.set)

    async def wait(self, seconds: float) -> None:
        """Return when there is news since the last return, or after ``seconds``."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    def close(self) -> None:
        """Give the place back."""
        self._feed.leave(self)


class RunFeed:
    """The rings of all runs. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begin empty, under a boot of its own."""
        self.boot = secrets.token_hex(4)
        self.closing = False
        """Set it to let every stream end soon; also from a signal handler."""
        self.work = Work()
        """What the workers have done since the daemon began."""
        self.looks = 0
        """How often `look_again` was called."""
        self._lock = threading.Lock()
        self._number = 0
        self._rings: OrderedDict[int, _Ring] = OrderedDict()

    def publish(
        self, run_id: int, name: str, data: Mapping[str, Any], *, stored: bool = False
    ) -> None:
        """Add an event; ``stored`` if the run's row tells it already."""
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
        with self._lock:
            ring = self._ring(run_id)
            self._number += 1
            ring.events.append(FeedEvent(self._number, name, text))
            if len(ring.events) > RING_EVENTS:
                ring.base = ring.events.popleft().number
            if stored and ring.stored == self._before_last(ring):
                ring.stored = self._number
            self._wake(ring)

    def stored(self, run_id: int) -> None:
        """The run's row tells everything that was published of it."""
        with self._lock:
            ring = self._rings.get(run_id)
            if ring is not None and ring.events:
                ring.stored = ring.events[-1].number

    def look_again(self) -> None:
        """Let every stream see whether its run is still there: some have been deleted."""
        with self._lock:
            self.looks += 1
            for ring in self._rings.values():
                self._wake(ring)

    def watch(self, run_id: int, sender: int) -> Watch:
        """A place for a stream of the client ``sender``; close it.

        Raises:
            TooManyStreamsError: there are too many already.
        """
        with self._lock:
            watches = [watch for ring in self._rings.values() for watch in ring.watches]
            if sum(watch.sender == sender for watch in watches) >= STREAMS_A_CLIENT:
                raise TooManyStreamsError(
                    f"expected at most {STREAMS_A_CLIENT} open event streams of one client; "
                    "close one first"
                )
            if len(watches) >= STREAMS_MOST:
                raise TooManyStreamsError(
                    f"expected at most {STREAMS_MOST} open event streams; try again later"
                )
            ring = self._ring(run_id)
            watch = Watch(self, run_id, sender, ring)
            ring.watches.add(watch)
            return watch

    def leave(self, watch: Watch) -> None:
        """Take a watch back."""
        with self._lock:
            watch.ring.watches.discard(watch)
            self._evict()

    def snapshot_number(self, watch: Watch) -> int:
        """The number under which the run's row, read after this call, may be sent."""
        with self._lock:
            return max(watch.ring.stored, watch.ring.base)

    def after(self, watch: Watch, number: int, most: int) -> list[FeedEvent] | None:
        """Up to ``most`` events after the one of that number; None if the ring can't tell them."""
        with self._lock:
            ring = watch.ring
            position = bisect_right(ring.events, number, key=lambda event: event.number)
            known = number == ring.base or (
                position > 0 and ring.events[position - 1].number == number
            )
            if not known:
                return None
            return [ring.events[i] for i in range(position, min(position + most, len(ring.events)))]

    def event_id(self, number: int) -> str:
        """The id under which an event is sent."""
        return f"{self.boot}-{number}"

    def number(self, event_id: str) -> int | None:
        """The number in an id of this boot; None for any other text."""
        boot, _, number = event_id.partition("-")
        plain = number.isascii() and number.isdigit() and len(number) < 19
        return int(number) if boot == self.boot and plain else None

    def _ring(self, run_id: int) -> _Ring:
        ring = self._rings.get(run_id)
        if ring is None:
            self._number += 1  # a number of its own, which no other run's id can be taken for
            ring = self._rings[run_id] = _Ring(self._number, self._number)
            self._evict()
        self._rings.move_to_end(run_id)
        return ring

    def _evict(self) -> None:
        unwatched = [one for one, ring in self._rings.items() if not ring.watches]
        for run_id in unwatched[: max(0, len(unwatched) - RINGS_KEPT)]:
            del self._rings[run_id]

    @staticmethod
    def _before_last(ring: _Ring) -> int:
        return ring.events[-2].number if len(ring.events) > 1 else ring.base

    @staticmethod
    def _wake(ring: _Ring) -> None:
        for watch in ring.watches:
            watch.wake()
