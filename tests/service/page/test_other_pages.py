"""What a page of another app on this phone can do to the daemon in the same browser: nothing."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.service.apps import new_code, redeem
from tests.service.daemon import Daemon

pytestmark = pytest.mark.browser


class _Elsewhere(BaseHTTPRequestHandler):
    """The web server of that other app."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><link rel=icon href=data:,>")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def elsewhere(chromium: Any) -> Iterator[Any]:
    """A tab with that app's page."""
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        yield page
        context.close()
        server.shutdown()


ATTEMPTS = """
async ([daemon, token, code]) => {
  const got = [];
  const attempt = async (name, work) => {
    try { const found = await work(); if (found) got.push([name, found]); } catch {}
  };
  const read = (path, options) => async () => (await fetch(daemon + path, options)).status;
  const headers = { Authorization: `Bearer ${token}` };
  await attempt("page", read("/"));
  await attempt("module", () => import(`${daemon}/page/session.js`));
  await attempt("health", read("/healthz"));
  await attempt("token", read("/v1/adapters", { headers }));
  await attempt("pair", read("/v1/pair", { method: "POST",
    headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) }));
  const plain = { method: "POST", mode: "no-cors", body: JSON.stringify({ code }) };
  await attempt("plain", () => fetch(`${daemon}/v1/pair`, plain).then(() => null));
  for (const [tag, path] of [["script", "/page/main.js"], ["img", "/page/icon.svg"]]) {
    await attempt(tag, () => new Promise((done) => {
      const one = document.createElement(tag);
      one.onload = () => done("loaded");
      one.onerror = () => done(null);
      one.src = daemon + path;
      document.body.append(one);
    }));
  }
  return got;
}
"""


def test_it_reads_nothing_loads_nothing_and_uses_up_no_code(shared: Daemon, elsewhere: Any) -> None:
    code = new_code(shared, "page", "admin", replace=True)
    daemon = f"http://127.0.0.1:{shared.port}"
    assert elsewhere.evaluate(ATTEMPTS, [daemon, shared.token, code]) == []
    assert redeem(shared, code).status_code == 201


def test_it_can_neither_frame_the_page_nor_lead_to_it(shared: Daemon, elsewhere: Any) -> None:
    """A frame could be clicked through, so even the file isn't handed out for one."""
    statuses = []
    elsewhere.on("response", lambda answer: statuses.append((answer.url, answer.status)))
    url = f"http://127.0.0.1:{shared.port}/"
    elsewhere.evaluate(
        """(url) => { const frame = document.createElement("iframe");
           frame.src = url; document.body.append(frame); }""",
        url,
    )
    elsewhere.wait_for_timeout(500)
    elsewhere.evaluate("(url) => { location.href = url; }", url)
    elsewhere.wait_for_timeout(500)
    assert [status for where, status in statuses if where == url] == [403, 403]
