"""The page's files as they are served, and who is kept out; the page itself: tests/service/page."""

import re

import httpx
import pytest

from service.page_files import FOLDER, MEDIA_TYPES, PAGE_FILES
from tests.service.daemon import Daemon

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def get(daemon: Daemon, path: str, **headers: str) -> httpx.Response:
    url = f"http://127.0.0.1:{daemon.port}{path}"
    return httpx.get(url, headers=headers, trust_env=False)


@pytest.mark.parametrize("path", PAGE_FILES)
def test_each_file_is_served_without_a_token_under_the_policy(shared: Daemon, path: str) -> None:
    answer = get(shared, path)
    assert answer.status_code == 200
    assert answer.content == PAGE_FILES[path].read_bytes()
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"].startswith(MEDIA_TYPES[PAGE_FILES[path].suffix])
    assert "set-cookie" not in answer.headers


def test_nothing_else_is_served() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {file.name for file in PAGE_FILES.values()}


@pytest.mark.parametrize(
    "path",
    ["/page", "/page/", "/page/index.html", "/page/../page_files.py", "/page/%2e%2e/app.py", "/x"],
)
def test_no_other_file_is(shared: Daemon, path: str) -> None:
    assert get(shared, path).status_code == 401
    assert shared.http.get(path).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ],
)
def test_no_other_page_gets_one(shared: Daemon, headers: dict[str, str]) -> None:
    for path in ("/", "/page/main.js"):
        assert get(shared, path, **headers).status_code == 403


def test_nothing_in_them_is_inline_or_from_elsewhere() -> None:
    texts = {file.name: file.read_text() for file in PAGE_FILES.values()}
    page = texts["index.html"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    for name, text in texts.items():
        addresses = set(re.findall(r"\w+://[^\s\"'`)]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name  # a name, not a place
        assert "innerHTML" not in text
        assert "Storage." not in text
