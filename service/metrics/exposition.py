"""The text format 0.0.4 of Prometheus: families of samples, each with what it means.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Mapping
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]


class Exposition:
    """A page of metrics, put together family by family."""

    def __init__(self) -> None:
        """Begin with an empty page."""
        self._lines: list[str] = []

    def family(self, name: str, kind: Kind, meaning: str) -> None:
        """Begin a family; its samples follow. ``name`` is a counter's with its ``_total``."""
        self._lines.append(f"# HELP {name} {_escaped(meaning, quotes=False)}")
        self._lines.append(f"# TYPE {name} {kind}")

    def sample(self, name: str, value: float | None, **labels: str | int | None) -> None:
        """One sample; nothing where the value isn't known. Labels that are None are left out."""
        if value is None:
            return
        given = {key: str(text) for key, text in labels.items() if text is not None}
        self._lines.append(f"{name}{_labels(given)} {_number(value)}")

    def one(
        self,
        name: str,
        kind: Kind,
        meaning: str,
        value: float | None,
        **labels: str | int | None,
    ) -> None:
        """A family of one sample."""
        self.family(name, kind, meaning)
        self.sample(name, value, **labels)

    def text(self) -> str:
        """The page."""
        return "\n".join([*self._lines, ""])


def _labels(given: Mapping[str, str]) -> str:
    if not given:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(text)}"' for key, text in given.items()) + "}"


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if isinstance(value, bool | int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
