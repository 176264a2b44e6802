"""What the page shows: a run as it happens, measurements, reasons, and no text unasked."""

import re
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from tests.service.apps import pair
from tests.service.daemon import MODEL, Daemon, until
from tests.service.page.conftest import OpenTab
from tests.service.page.tab import Tab

pytestmark = pytest.mark.browser

CANARY = "canary-5f1e"


@pytest.mark.slow
def test_a_run_is_watched_step_by_step_to_its_verdict(ready: Daemon, open_tab: OpenTab) -> None:
    ready.script(steps=80, step_seconds=0.1)
    tab = open_tab(ready)
    tab.log_in()
    tab.press(f"Train {ready.name} now")
    tab.sees("was asked for")
    bar = tab.page.get_by_role("progressbar", name="Steps done")
    tab.expect(bar).to_be_visible()
    polls = len(tab.asked("/v1/device"))
    seen = {bar.get_attribute("value")}
    until(lambda: seen.add(bar.get_attribute("value")) or len(seen) >= 8)
    assert len(seen) > 2 * (len(tab.asked("/v1/device")) - polls)  # they came by the stream
    [stream] = tab.asked("/events")
    assert stream.headers["authorization"].startswith("Bearer ")
    picture = tab.page.get_by_role(
        "img", name=re.compile(r"^Loss per label token: 2\.000 at step 1")
    )
    tab.expect(picture).to_be_visible()
    points = picture.locator("polyline").get_attribute("points").split()
    assert len(points) >= 5
    heights = [float(point.split(",")[1]) for point in points]
    assert heights == sorted(heights)  # the stand-in's loss falls, and y grows downwards
    tab.sees("25 °C", tab.page.locator("#run"))
    tab.expect(tab.page.locator("#run")).to_be_hidden(timeout=20_000)
    card = tab.card()
    tab.sees("Version 1 is active", card)
    after = card.get_by_role("row", name=re.compile("^Version 1: after"))
    tab.expect(after).to_contain_text("90.0 %")
    tab.expect(after).to_contain_text("77 to 96")  # Wilson, of 36 in 40
    tab.expect(after).to_contain_text("0.400")
    tab.expect(card.get_by_role("row", name=re.compile("^Base model"))).to_contain_text("30.0 %")
    tab.expect(card.get_by_role("row", name=re.compile("of late"))).to_contain_text("50.0 %")
    tab.sees("Version 1 promoted", tab.page.locator("#history"))
    tab.expect(tab.page.locator("#history")).to_contain_text("page Paired with the scopes admin.")


def test_too_few_rows_are_said_in_words(ready: Daemon, open_tab: OpenTab) -> None:
    ready.script(holdout=9)
    ready.wait_until_ended(ready.train())
    tab = open_tab(ready)
    tab.log_in()
    tab.sees(
        "9 held-out examples are too few to say whether it is better: 30 are needed", tab.card()
    )
    tab.sees("too few to tell", tab.card())


def test_every_adapter_says_why_it_is_not_trained(own: Daemon, open_tab: OpenTab) -> None:
    own.create_adapter("empty")
    with pair(own, "mail") as mail:
        body = {"name": "inbox", "base_model": MODEL, "labels": ["now", "later"]}
        assert mail.http.post("/v1/adapters", json=body).status_code == 201
        tab = open_tab(own)
        tab.log_in()
        queue = tab.page.locator("#queue")
        tab.sees("It has no training examples yet.", queue)
        tab.sees("inbox (mail)", queue)
        assert "POST" not in queue.inner_text()


def test_texts_are_shown_only_to_whom_opens_them_and_never_as_markup(
    ready: Daemon, open_tab: OpenTab
) -> None:
    from playwright.sync_api import TimeoutError as TooLate

    text = f"<img src=x onerror=alert(1)> {CANARY}"
    posted = ready.http.post(ready.path("/examples"), json={"input": text, "label": "now"})
    assert posted.status_code == 201
    tab = open_tab(ready)
    tab.log_in()
    tab.expect(tab.card()).to_be_visible()
    assert CANARY not in tab.page.content()
    assert not tab.asked("/examples")
    fold = tab.card().get_by_text("Examples", exact=True)
    fold.click()
    more = tab.card().get_by_role("button", name="Show more")
    tab.expect(more).to_be_visible()

    def is_shown() -> bool:
        if not tab.card().get_by_text(text).count():
            with suppress(TooLate):  # the last ones have just come, and the button has gone
                more.click(timeout=500)
        return bool(tab.card().get_by_text(text).count())

    until(is_shown)
    assert not tab.page.locator("#adapters img").count()
    fold.click()
    tab.expect(tab.card().get_by_text(CANARY)).to_have_count(0)
    assert CANARY not in tab.page.content()


def test_an_app_that_may_only_look_sees_its_own_and_no_buttons(
    shared: Daemon, open_tab: OpenTab
) -> None:
    tab = open_tab(shared)
    tab.log_in("status:read", name="glance")
    tab.sees("No app has made one yet.")
    assert not tab.page.locator("#board button[data-do]").count()
    tab.expect(tab.page.locator("#gates li")).to_have_count(6)


@pytest.mark.slow
def test_nothing_is_asked_while_nobody_looks(own: Daemon, open_tab: OpenTab) -> None:
    own.script(steps=1000, step_seconds=0.05)
    own.train()
    tab = open_tab(own)
    tab.log_in()
    tab.sees(f"Training {own.name}")
    look(tab, hidden=True)
    tab.page.wait_for_timeout(500)
    asked = len(tab.requests)
    tab.page.wait_for_timeout(6_000)  # longer than a period
    assert len(tab.requests) == asked
    look(tab, hidden=False)
    until(lambda: tab.page.wait_for_timeout(50) or len(tab.asked("/events")) == 2)
    assert tab.requests[asked].url.startswith(f"{tab.origin}/v1/hello?")  # who is there, first


CUT = """
const real = window.fetch;
window.streams = [];
window.fetch = async (path, options) => {
  if (!path.includes("/events")) return real(path, options);
  const before = window.streams.push(options.headers["Last-Event-ID"] ?? null) - 1;
  const response = await real(path, options);
  if (before) return response;
  const reader = response.body.getReader();
  let read = 0;
  return new Response(new ReadableStream({ async pull(controller) {
    const { value } = await reader.read();
    read += 1;
    if (read < 8) return controller.enqueue(value);
    reader.cancel();
    controller.error(new TypeError("network error"));
  } }));
};
"""


def test_a_stream_that_breaks_goes_on_where_it_was(own: Daemon, open_tab: OpenTab) -> None:
    own.script(steps=200, step_seconds=0.1)
    own.train()
    tab = open_tab(own, script=CUT)
    tab.log_in()
    until(lambda: tab.page.wait_for_timeout(50) or tab.page.evaluate("window.streams.length > 1"))
    first, second, *_ = tab.page.evaluate("window.streams")
    assert first is None
    assert re.fullmatch(r"[0-9a-f]{8}-\d+", second)
    tab.page.wait_for_timeout(1_000)
    points = tab.page.locator("#run polyline").get_attribute("points").split()
    assert len(points) > 8
    places = [float(point.split(",")[0]) for point in points]
    gaps = [later - earlier for earlier, later in pairwise(places)]
    assert max(gaps) < 1.5 * min(gaps)  # no step is missing


def look(tab: Tab, *, hidden: bool) -> None:
    """As if the person turned to another tab, and back."""
    tab.page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


STREAM = (
    ": hello\nretry: 2000\n\nid: a-1\nevent: step\ndata: {\"step\": 1}\n\n"
    "data: 1\r\n\r\nevent: näh\rid: a-2\rdata:[1,\rdata: 2]\r\r"
    "event: nothing\n\nid: a-3\ndata: {\"text\": \"a:b\"}\n\nid: a-4\ndata: \"cut o"
)  # fmt: skip
EVENTS = [
    {"id": "a-1", "name": "step", "data": {"step": 1}},
    {"id": "a-1", "name": "message", "data": 1},
    {"id": "a-2", "name": "näh", "data": [1, 2]},
    {"id": "a-3", "name": "message", "data": {"text": "a:b"}},
]


def test_events_are_read_by_the_letter_however_they_are_cut(
    shared: Daemon, open_tab: OpenTab
) -> None:
    tab = open_tab(shared)
    found: list[Any] = tab.page.evaluate(
        """async (bytes) => {
          const { eventsOf } = await import("/page/event_stream.js");
          const found = [];
          for (let size = 1; size <= bytes.length; size += size < 8 ? 1 : 13) {
            const body = new ReadableStream({ start(controller) {
              for (let at = 0; at < bytes.length; at += size) {
                controller.enqueue(Uint8Array.from(bytes.slice(at, at + size)));
              }
              controller.close();
            } });
            const events = [];
            for await (const event of eventsOf(body)) events.push(event);
            found.push(events);
          }
          return found;
        }""",
        list(STREAM.encode()),
    )
    assert len(found) > 10
    assert all(events == EVENTS for events in found)


def test_intervals_are_wilsons(shared: Daemon, open_tab: OpenTab) -> None:
    """Against its definition: at the ends of the interval the score test is just at 95 %."""
    tab = open_tab(shared)
    for right, n in ((0, 9), (5, 10), (36, 40), (73, 87), (40, 40)):
        low, high = tab.page.evaluate(
            """async ([share, n]) =>
              (await import("/page/interval.js")).wilson(share, n)""",
            [right / n, n],
        )
        assert 0 <= low <= right / n <= high <= 1
        for end in (low, high):
            if 0 < end < 1 and not (end == low and right == 0):
                deviation = abs(right / n - end) / (end * (1 - end) / n) ** 0.5
                assert deviation == pytest.approx(1.959964, rel=1e-4), (right, n, end)
