"""A tab with the page of a daemon, and everything it has asked for and complained about."""

import re
from typing import Any, Self

from tests.service.apps import new_code
from tests.service.daemon import Daemon

_WATCH = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
"""

# What Chromium itself says on the console of every answer that is an error, and of a dead port.
STATUS = "Failed to load resource: the server responded with a status of {}"
REFUSED = "Failed to load resource: net::ERR_"


class Tab:
    """Usable as a context manager; its end fails where the page did what it must not do."""

    def __init__(self, browser: Any, daemon: Daemon, script: str = "", **options: Any) -> None:
        from playwright.sync_api import expect

        self.expect = expect
        self.daemon = daemon
        self.origin = f"http://127.0.0.1:{daemon.port}"
        self.requests: list[Any] = []
        self.complaints: list[str] = []
        self.expected: list[str] = []
        """Beginnings of complaints that the test brings about."""
        self.context = browser.new_context(**{"viewport": {"width": 412, "height": 900}} | options)
        self.context.add_init_script(_WATCH + script)
        self.context.on("request", lambda request: self.requests.append(request))
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        expect.set_options(timeout=15_000)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{self.origin}/")

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        try:
            if kind is None:
                self.assert_well_behaved()
        finally:
            self.context.close()

    def assert_well_behaved(self) -> None:
        for request in self.requests:
            assert request.url.startswith((f"{self.origin}/", f"blob:{self.origin}/")), request.url
            assert self.daemon.token not in request.url
            assert not re.search(r"token|Bearer", request.url)
        unexpected = [
            text for text in self.complaints if not text.startswith(tuple(self.expected) or "\0")
        ]
        assert not unexpected
        stored = self.page.evaluate(
            "[localStorage.length, sessionStorage.length, document.cookie, location.href]"
        )
        assert stored == [0, 0, "", f"{self.origin}/"]

    def expects(self, *statuses: int, refused: bool = False) -> None:
        self.expected += [STATUS.format(status) for status in statuses]
        self.expected += [REFUSED] if refused else []

    def asked(self, pattern: str) -> list[Any]:
        """The requests whose path matches."""
        return [one for one in self.requests if re.search(pattern, one.url)]

    def log_in(self, *scopes: Any, name: str = "page") -> None:
        """As the owner does it, or with an app's scopes."""
        code = new_code(self.daemon, name, *(scopes or ("admin",)), replace=True)
        self.page.get_by_label("Pairing code").fill(code)
        self.page.keyboard.press("Enter")
        self.expect(self.page.locator("#board")).to_be_visible()

    def card(self, name: str | None = None) -> Any:
        """An adapter of the owner's."""
        return self.page.get_by_role("article", name=name or self.daemon.name, exact=True)

    def press(self, name: str, within: Any = None) -> None:
        (within or self.page).get_by_role("button", name=name).click()

    def sees(self, text: str, within: Any = None) -> None:
        self.expect((within or self.page).get_by_text(text).first).to_be_visible()
