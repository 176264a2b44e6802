"""The feed: rings, numbers, and what a reader that fell behind is told."""

import asyncio

import pytest

from service.runs import run_feed
from service.runs.run_feed import RunFeed, TooManyStreamsError, Watch


@pytest.fixture
def feed() -> RunFeed:
    return RunFeed()


def numbers(feed: RunFeed, watch: Watch, number: int, most: int = 10_000) -> list[int] | None:
    events = feed.after(watch, number, most)
    return None if events is None else [event.number for event in events]


async def watching(feed: RunFeed, run_id: int = 1, sender: int = 1) -> Watch:
    return feed.watch(run_id, sender)


def test_events_follow_in_order_and_only_those_of_the_run(feed: RunFeed) -> None:
    watch = asyncio.run(watching(feed))
    begin = feed.snapshot_number(watch)
    feed.publish(1, "step", {"step": 1})
    feed.publish(2, "step", {"step": 7})
    feed.publish(1, "step", {"step": 2})
    events = feed.after(watch, begin, 10)
    assert events is not None
    assert [(event.name, event.data) for event in events] == [
        ("step", '{"step":1}'),
        ("step", '{"step":2}'),
    ]
    first, second = (event.number for event in events)
    assert numbers(feed, watch, first) == [second]
    assert numbers(feed, watch, second) == []
    assert numbers(feed, watch, begin, most=1) == [first]
    assert numbers(feed, watch, first + 1) is None, "the number of another run's event"
    assert numbers(feed, watch, second + 5) is None
    assert numbers(feed, watch, 0) is None


def test_a_reader_behind_the_ring_is_told_so_and_the_ring_stays_short(
    feed: RunFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_feed, "RING_EVENTS", 5)
    watch = asyncio.run(watching(feed))
    begin = feed.snapshot_number(watch)
    for step in range(5):
        feed.publish(1, "step", {"step": step})
    assert len(numbers(feed, watch, begin) or []) == 5
    feed.publish(1, "step", {"step": 5})
    assert numbers(feed, watch, begin) is None
    assert len(watch.ring.events) == 5
    assert len(numbers(feed, watch, feed.snapshot_number(watch)) or []) == 5


def test_a_snapshot_is_numbered_by_what_the_row_surely_tells(feed: RunFeed) -> None:
    watch = asyncio.run(watching(feed))
    begin = feed.snapshot_number(watch)
    feed.publish(1, "step", {"step": 1})
    feed.publish(1, "step", {"step": 2})
    feed.publish(1, "status", {"status": "paused"}, stored=True)
    assert feed.snapshot_number(watch) == begin, "steps 1 and 2 aren't in the row yet"
    feed.stored(1)
    assert numbers(feed, watch, feed.snapshot_number(watch)) == []
    feed.publish(1, "status", {"status": "queued"}, stored=True)
    assert numbers(feed, watch, feed.snapshot_number(watch)) == []


def test_ids_are_of_one_boot(feed: RunFeed) -> None:
    assert feed.number(feed.event_id(17)) == 17
    for foreign in ("", "17", RunFeed().event_id(17), f"{feed.boot}-", f"{feed.boot}-x", "end-1"):
        assert feed.number(foreign) is None
    assert feed.number(f"{feed.boot}-{'9' * 50}") is None
    assert feed.number(f"{feed.boot}-²") is None


def test_few_rings_are_kept_and_never_one_that_is_watched_goes(feed: RunFeed) -> None:
    watch = asyncio.run(watching(feed, run_id=1))
    feed.publish(1, "step", {})
    for run_id in range(2, 20):
        feed.publish(run_id, "step", {})
    assert len(numbers(feed, watch, feed.snapshot_number(watch)) or []) == 1
    assert len(feed._rings) == run_feed.RINGS_KEPT + 1
    watch.close()
    assert len(feed._rings) == run_feed.RINGS_KEPT


def test_places_are_few_per_client_and_in_all_and_come_back(feed: RunFeed) -> None:
    async def fill() -> None:
        mine = [feed.watch(run_id, 1) for run_id in range(run_feed.STREAMS_A_CLIENT)]
        with pytest.raises(TooManyStreamsError, match="of one client"):
            feed.watch(1, 1)
        others = run_feed.STREAMS_MOST - run_feed.STREAMS_A_CLIENT
        for number in range(others):
            feed.watch(1, 2 + number // run_feed.STREAMS_A_CLIENT)
        with pytest.raises(TooManyStreamsError, match="try again later"):
            feed.watch(1, 99)
        mine[0].close()
        mine[0].close()
        feed.watch(1, 99)
        with pytest.raises(TooManyStreamsError):
            feed.watch(1, 98)

    asyncio.run(fill())


def test_news_from_another_thread_wakes(feed: RunFeed) -> None:
    async def wait() -> float:
        watch = feed.watch(1, 1)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.gather(
            watch.wait(20), asyncio.to_thread(feed.publish, 1, "step", {"step": 1})
        )
        took = loop.time() - begin
        await watch.wait(0.01)  # it has been told already
        return took

    assert asyncio.run(wait()) < 5


def test_a_closed_loop_does_no_harm(feed: RunFeed) -> None:
    watch = asyncio.run(watching(feed))
    feed.publish(1, "step", {})
    feed.look_again()
    assert feed.looks == 1
    watch.close()
