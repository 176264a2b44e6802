"""The page for people that /docs shows: the OpenAPI document as HTML, without a script.

Everything it needs is in it. Its Content-Security-Policy lets a browser load nothing else, and
apply no style but the page's own, named by its hash.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

_REFERENCE = "#/components/schemas/"
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_CODE = re.compile(r"(`+)(.+?)\1")

_BOUNDS = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {}"),
    ("maxItems", "at most {}"),
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "over {}"),
    ("maximum", "at most {}"),
    ("pattern", "like {}"),
    ("format", "as {}"),
)


def render(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"line": line, "prose": prose, "kind": kind}
    template = environment.from_string(
        resources.files("service").joinpath("docs_page.html").read_text(encoding="utf-8")
    )
    return template.render(
        info=document["info"],
        groups=_groups(document),
        schemas=sorted(document.get("components", {}).get("schemas", {}).items()),
    )


def content_security_policy(page: str) -> str:
    """The policy under which a browser shows the page and can do nothing else with it."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
        for style in _STYLE.findall(page)
    )
    return (
        f"default-src 'none'; style-src {hashes}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _groups(document: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The operations under their tags, both in the document's order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = {
                "id": f"{method}-{re.sub('[^a-z0-9]+', '-', path.lower()).strip('-')}",
                "method": method.upper(),
                "path": path,
                "description": operation.get("description", ""),
                "parameters": operation.get("parameters", []),
                "body": operation.get("requestBody"),
                "responses": sorted(operation["responses"].items()),
            }
            groups.setdefault(operation.get("tags", ["other"])[0], []).append(shown)
    return list(groups.items())


def line(text: str) -> Markup:
    """One line of text, with `code` where it has backquotes."""
    return Markup(_CODE.sub(r"<code>\2</code>", html.escape(text)))


def prose(text: str) -> Markup:
    """Paragraphs, with `code` where the text has it in backquotes."""
    paragraphs = filter(None, re.split(r"\n\s*\n", text.strip()))
    return Markup("").join(Markup("<p>{}</p>").format(line(each)) for each in paragraphs)


def kind(schema: dict[str, Any]) -> Markup:
    """In words what values a schema takes, with a link where it refers to another."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return Markup('<a href="#schema-{0}">{0}</a>').format(name)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _join(" or ", map(kind, schema[several]))
    if "const" in schema:
        return _code(schema["const"])
    if "enum" in schema:
        return _join(" or ", map(_code, schema["enum"]))
    bounds = [words.format(_number(schema[key])) for key, words in _BOUNDS if key in schema]
    limits = Markup(" ({})").format(", ".join(bounds)) if bounds else ""
    return Markup("{}{}").format(_plain_kind(schema), limits)


def _plain_kind(schema: dict[str, Any]) -> str | Markup:
    if "prefixItems" in schema:
        return Markup("[{}]").format(_join(", ", map(kind, schema["prefixItems"])))
    if schema.get("type") == "array":
        return Markup("list of {}").format(kind(schema.get("items", {})))
    if isinstance(schema.get("additionalProperties"), dict):
        return Markup("object of {}").format(kind(schema["additionalProperties"]))
    return str(schema.get("type", "anything"))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _code(value: Any) -> Markup:
    return Markup("<code>{}</code>").format("null" if value is None else value)


def _join(between: str, parts: Iterable[Markup]) -> Markup:
    return Markup(between).join(parts)
