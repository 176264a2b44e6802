"""The lines of the log: plain words, or one JSON object each. Neither ever holds a person's text.

In JSON ``event`` is the message before its values are put in, so that equal things that happen have
equal names, and ids stand by themselves. Of an exception only its kind is told, in both: what it
says may quote a text.
"""

import json
import logging
import re
import time
from datetime import UTC, datetime
from typing import Any, Literal

Style = Literal["plain", "json"]

_PLACE = re.compile(r"(?:\b(run|worker|adapter|erasure) )?%[-.\d]*([sdf])")
_OF_EVERY_RECORD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
    "event",
}


class PlainLines(logging.Formatter):
    """Time in UTC, level, logger and message."""

    def __init__(self) -> None:
        """With the daemon's format."""
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.converter = time.gmtime

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        """The exception's kind."""
        return _kind(ei)


class JsonLines(logging.Formatter):
    """Time, level, logger, event, message, ids, and what a record was given by name."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object on one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", None) or str(record.msg),
            "message": record.getMessage(),
        }
        line |= _ids(record)
        given = {key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD}
        line |= {key: value for key, value in given.items() if key not in line}
        if record.exc_info:
            line["exception"] = _kind(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def formatter(style: Style) -> logging.Formatter:
    """What writes the lines in this style."""
    return JsonLines() if style == "json" else PlainLines()


def _ids(record: logging.LogRecord) -> dict[str, int]:
    """The numbers that follow the words run, worker, adapter and erasure in the message."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    places = _PLACE.finditer(record.msg.replace("%%", ""))
    return {
        place[1]: value
        for place, value in zip(places, record.args, strict=False)
        if place[1] is not None and isinstance(value, int)
    }


def _kind(ei: Any) -> str:
    kind = ei[0] if isinstance(ei, tuple) else type(ei)
    return "an exception" if kind is None else f"{kind.__module__}.{kind.__qualname__}"
