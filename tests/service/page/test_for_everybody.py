"""The page by keyboard, for screen readers, in the dark, on a narrow phone, without motion."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import Daemon, add_stand_in_model
from tests.service.page.conftest import OpenTab
from tests.service.page.tab import Tab

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with something in every section: a run, versions of each verdict, a closed gate."""
    home = tmp_path_factory.mktemp("busy") / "home"
    add_stand_in_model(home)
    with Daemon(home) as daemon:
        for name, holdout in (("phone", 40), ("small", 9)):
            daemon.create_adapter(name)
            daemon.post_examples(name)
            daemon.script(holdout=holdout)
            daemon.wait_until_ended(daemon.train(name))
        daemon.create_adapter("notes", labels=None)
        daemon.post_examples("notes")
        daemon.script(steps=10_000, step_seconds=0.1)
        daemon.train("notes")
        yield daemon


def violations(tab: Tab) -> list[Any]:
    """What axe-core finds; it is run by the debugger, which the page's policy doesn't bind."""
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    tab.page.evaluate(axe + "; null")
    found: list[Any] = tab.page.evaluate(
        """async () => (await axe.run(document, { runOnly: [
          "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })).violations
          .map(({ id, nodes }) => [id, nodes.map((node) => node.html)])"""
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(busy: Daemon, open_tab: OpenTab, scheme: str) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-core isn't installed")
    tab = open_tab(busy, color_scheme=scheme)
    assert violations(tab) == []
    tab.log_in()
    tab.sees("Training notes")
    for summary in tab.page.locator("summary").all():
        summary.click()
    assert violations(tab) == []
    tab.press("Delete adapter phone")
    assert violations(tab) == []


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_sticks_out(busy: Daemon, open_tab: OpenTab, width: int) -> None:
    tab = open_tab(busy, viewport={"width": width, "height": 800})
    tab.log_in()
    tab.sees("Training notes")
    for summary in tab.page.locator("summary").all():
        summary.click()
    assert tab.page.evaluate("document.documentElement.scrollWidth") == width
    small = tab.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select")]
          .map((one) => [one.textContent || one.name, one.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0 && (box.height < 44 || box.right > innerWidth))
          .map(([name]) => name)"""
    )
    assert small == []


def test_everything_can_be_done_by_keyboard(busy: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(busy)
    tab.log_in()  # types and presses Enter
    tab.sees("Training notes")
    page = tab.page
    names, without_outline = [], []
    while names.count("") < 2 and len(names) < 120:
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            names.append("")  # past the last one; the next is the first
            continue
        name, outline = page.evaluate(
            """() => { const one = document.activeElement;
              return [one.getAttribute("aria-label") || one.textContent.trim(),
                      getComputedStyle(one).outlineStyle]; }"""
        )
        names.append(name)
        if outline == "none":
            without_outline.append(name)
        if name == "Delete adapter phone":
            page.keyboard.press("Enter")
            tab.expect(page.get_by_role("dialog")).to_be_visible()
            page.keyboard.press("Tab")
            tab.expect(page.get_by_role("button", name="Delete phone")).to_be_focused()
            page.keyboard.press("Escape")
            tab.expect(page.get_by_role("button", name="Delete adapter phone")).to_be_focused()
    assert not without_outline
    assert names[names.index("") + 1].startswith("Skip to")
    wanted = {"Log out", "Pause all training…", "Pause this run", "Train phone now", "1 version"}
    assert wanted <= set(names)


@pytest.mark.slow
def test_a_refresh_takes_neither_focus_nor_what_was_opened(busy: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(busy)
    tab.log_in()
    tab.card("phone").get_by_text("1 version", exact=True).click()
    train = tab.page.get_by_role("button", name="Train phone now")
    train.focus()
    train.evaluate("(one) => (one.mark = 'the same')")
    polls = len(tab.asked("/v1/device"))
    while len(tab.asked("/v1/device")) < polls + 2:
        tab.page.wait_for_timeout(100)
    tab.expect(train).to_be_focused()
    assert train.evaluate("(one) => one.mark") == "the same"
    tab.expect(tab.card("phone").locator("details").first).to_have_attribute("open", "")


def test_landmarks_headings_and_live_regions(busy: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(busy)
    tab.log_in()
    page = tab.page
    tab.sees("Training notes")
    for role in ("banner", "main", "contentinfo"):
        tab.expect(page.get_by_role(role)).to_have_count(1)
    tab.expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for region in ("Gates", "Adapters", "Whose turn it is", "What happened", "Training notes"):
        tab.expect(page.get_by_role("region", name=region)).to_have_count(1)
    live = page.locator("[aria-live], [role=alert], [role=status]").evaluate_all(
        "(all) => all.map((one) => one.id).sort()"
    )
    assert live == ["gone", "login-error", "said", "wrong"]  # steps are not read aloud


def test_who_wants_no_motion_gets_none(busy: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(busy, reduced_motion="reduce")
    tab.log_in()
    moving = tab.page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) => {
          const style = getComputedStyle(one);
          return style.transitionDuration !== "0s" || style.animationName !== "none"; }).length"""
    )
    assert moving == 0


def test_screenshots_differ_by_scheme(busy: Daemon, open_tab: OpenTab, tmp_path: Path) -> None:
    """The dark page is dark and the light one light, by the pixels that are shown."""
    brightness = []
    for scheme in ("light", "dark"):
        tab = open_tab(busy, color_scheme=scheme)
        background = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness.append(sum(int(part) for part in background[4:-1].split(",")))
    assert brightness[0] > 700
    assert brightness[1] < 100
