"""The frontier's measurements as JSON lines, so that an interrupted bench goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Records:
    """Measurements by key; each is on disk before the next is begun."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a last line that a killed bench left unfinished is dropped."""
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        for line in whole.splitlines():
            record = json.loads(line)
            self._found[record["key"]] = record["value"]

    def get(self, key: str) -> dict[str, Any] | None:
        """The measurement, if it was made."""
        return self._found.get(key)

    def add(self, key: str, value: dict[str, Any]) -> dict[str, Any]:
        """Keep a measurement."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")
        self._found[key] = value
        return value
