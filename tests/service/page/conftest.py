"""A real headless Chromium, and tabs in it that notice what a page must never do."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.service.daemon import Daemon
from tests.service.page.tab import Tab

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

OpenTab = Callable[..., Tab]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """For one file's tests: while it lives, no other test's asyncio.run works in this thread."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright isn't installed: the page is in no browser tested"
    )
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium is installed: the page is in no browser tested")
    with playwright.sync_playwright() as driver:
        # As root Chromium has no sandbox; it loads nothing here but pages of these tests.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_tab(chromium: Any) -> Iterator[OpenTab]:
    """Opens the page of a daemon; at the end each tab must have kept within its bounds."""
    with ExitStack() as tabs:

        def open_tab(daemon: Daemon, **options: Any) -> Tab:
            return tabs.enter_context(Tab(chromium, daemon, **options))

        yield open_tab
