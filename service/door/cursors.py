"""Cursors: where a page of a list ended, as text that an app hands back and needn't understand.

A cursor belongs to one kind of list. It is unpadded base64url of ``kind:position``, and only the
very text that `encode` makes is taken back.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from api_schemas.base import LARGEST_ID
from service.door.problems import Refusal, invalid

T = TypeVar("T")

MOST_A_PAGE = 200
A_PAGE = 50

Limit = Annotated[int, Query(ge=1, le=MOST_A_PAGE, description="The most that a page may have.")]
"""The parameter ``limit`` of a list; its default is `A_PAGE`."""

Cursor = Annotated[
    str | None, Query(max_length=200, description="The `next` of the page before this one.")
]
"""The parameter ``cursor`` of a list."""


def encode(kind: str, position: int | str) -> str:
    """The cursor of a ``kind`` of list for ``position``: an id, or a name."""
    return base64.urlsafe_b64encode(f"{kind}:{position}".encode()).decode().rstrip("=")


def decode(kind: str, cursor: str) -> int:
    """The position, a number in 0..2^63-1, that `encode` was given.

    Raises:
        Refusal: 422 at ``query.cursor`` for anything that `encode` didn't make.
    """
    text = decode_text(kind, cursor)
    try:
        position = int(text)
    except ValueError:
        raise _refusal() from None
    if encode(kind, position) != cursor or not 0 <= position <= LARGEST_ID:
        raise _refusal()
    return position


def decode_text(kind: str, cursor: str) -> str:
    """The position, a text, that `encode` was given.

    Raises:
        Refusal: 422 at ``query.cursor`` for anything that `encode` didn't make.
    """
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        decoded = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise _refusal() from None
    found, colon, text = decoded.partition(":")
    if (found, colon) != (kind, ":") or encode(kind, text) != cursor:
        raise _refusal()
    return text


def cut(
    kind: str, rows: Sequence[T], limit: int, position: Callable[[T], int | str]
) -> tuple[Sequence[T], str | None]:
    """The page of ``rows``, of which one more than ``limit`` was asked for, and its ``next``.

    ``position`` tells where in the ``kind`` of list a row stands.
    """
    shown = rows[:limit]
    return shown, encode(kind, position(shown[-1])) if len(rows) > limit else None


def _refusal() -> Refusal:
    return invalid(
        (
            "query.cursor",
            "expected the 'next' of a page of this list; leave it out to begin at the start",
        )
    )
