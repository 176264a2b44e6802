"""The page for people: whole, safe to show, and independent of any network."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from service.docs_page import content_security_policy, kind, prose, render
from tests.service.daemon import Daemon

VOID = {"meta", "br", "hr", "img", "input", "link"}
LOADING = {"src", "srcset", "data", "action", "background", "poster", "style"}


class Page(HTMLParser):
    """What a browser would make of it; fails where an element isn't closed or nested right."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.styles: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.styles.append(data)
        else:
            self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


@pytest.fixture(scope="module")
def answer(shared: Daemon) -> httpx.Response:
    response = httpx.get(f"http://127.0.0.1:{shared.port}/docs", trust_env=False)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return response


def test_the_page_needs_no_token_and_the_document_does(
    shared: Daemon, answer: httpx.Response
) -> None:
    for path in ("/openapi.json", "/docs/", "/docs/x", "/docs/../openapi.json"):
        url = f"http://127.0.0.1:{shared.port}{path}"
        assert httpx.get(url, trust_env=False).status_code == 401, path
    url = f"http://127.0.0.1:{shared.port}/docs"
    assert httpx.get(url, headers={"Host": "evil.example"}, trust_env=False).status_code == 403
    assert httpx.post(url, trust_env=False).status_code == 405
    assert httpx.get(url, trust_env=False).content == answer.content


def test_it_shows_every_operation_parameter_status_and_schema(
    shared: Daemon, answer: httpx.Response
) -> None:
    document: dict[str, Any] = shared.http.get("/openapi.json").json()
    page = Page(answer.text)
    articles = dict(re.findall(r'<article id="([^"]+)">(.*?)</article>', answer.text, re.DOTALL))
    shown = {
        (Page(article).text.split()[0], Page(article).text.split()[1]): Page(article).text
        for name, article in articles.items()
        if not name.startswith("schema-")
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = shown.pop((method.upper(), path))
            for parameter in operation.get("parameters", []):
                assert f"{parameter['name']} in the {parameter['in']}: " in text
            for status in operation["responses"]:
                assert status in text
            for scope in operation.get("x-scopes", []):
                assert scope in text
            for media_type in operation.get("requestBody", {"content": {}})["content"]:
                assert media_type in text
    assert not shown
    for name, schema in document["components"]["schemas"].items():
        text = Page(articles[f"schema-{name}"]).text
        for field in schema.get("properties", ()):
            assert field in text
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link


def test_it_loads_nothing_and_runs_nothing(answer: httpx.Response) -> None:
    page = Page(answer.text)
    assert not {"script", "link", "img", "iframe", "form", "object", "embed"} & set(page.tags)
    names = {name for _, name, _ in page.attributes}
    assert not [name for name in names if name in LOADING or name.startswith("on")]
    assert all(link.startswith("#") for link in page.values("href"))
    [style] = page.styles
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.headers["content-security-policy"].split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]


def test_it_fits_a_phone_and_both_lights(answer: httpx.Response) -> None:
    page = Page(answer.text)
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes
    assert ("meta", "content", "light dark") in page.attributes
    [style] = page.styles
    assert "@media (prefers-color-scheme: dark)" in style
    assert "table" not in page.tags  # what is wider than a phone
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w+)", block))
        for block in re.findall(r":root \{([^}]*)\}", style)
    )
    for colors in (light, dark):
        for ink in ("ink", "soft", "link"):
            for paper in ("paper", "code"):
                assert contrast(colors[ink], colors[paper]) >= 4.5, (ink, paper)


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio of two colours."""

    def luminance(color: str) -> float:
        digits = color[1:] if len(color) == 7 else "".join(letter * 2 for letter in color[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_what_the_document_says_is_text_and_never_markup() -> None:
    evil = '<script>alert("1")</script> `<b>` & {{ 7 * 7 }}'
    document = {
        "info": {"title": evil, "version": evil, "description": evil},
        "paths": {
            f"/{evil}": {
                "get": {
                    "tags": [evil],
                    "description": evil,
                    "parameters": [
                        {
                            "name": evil,
                            "in": "query",
                            "description": evil,
                            "schema": {"enum": [evil], "default": evil},
                        }
                    ],
                    "requestBody": {"description": evil, "content": {evil: {"schema": {}}}},
                    "responses": {"200": {"description": evil}},
                }
            }
        },
        "components": {
            "schemas": {
                evil: {"properties": {evil: {"pattern": evil, "description": evil}}},
                "other": {"$ref": f"#/components/schemas/{evil}"},
            }
        },
    }
    text = render(document)
    page = Page(text)
    assert not {"script", "b"} & set(page.tags)
    assert 'alert("1")' in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "script" not in content_security_policy(text)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "anything"),
        ({"type": "integer", "minimum": 1.0, "maximum": 64}, "integer (at least 1, at most 64)"),
        ({"type": "number", "exclusiveMinimum": 0.5}, "number (over 0.5)"),
        ({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
         "string (at most 3 characters) or null"),
        ({"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 2},
         "list of string (at least 1 characters) (at most 2)"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}]},
         "[integer, number]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"enum": ["a", None]}, "<code>a</code> or <code>null</code>"),
        ({"const": "x"}, "<code>x</code>"),
        ({"$ref": "#/components/schemas/Run"}, '<a href="#schema-Run">Run</a>'),
    ],
)  # fmt: skip
def test_kinds_in_words(schema: dict[str, Any], words: str) -> None:
    assert kind(schema) == words


def test_prose() -> None:
    assert prose("a `b`\n\n``c`` & d") == "<p>a <code>b</code></p><p><code>c</code> &amp; d</p>"
    assert prose(" ") == ""
