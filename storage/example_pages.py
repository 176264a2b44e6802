"""Examples a page at a time."""

from dataclasses import dataclass

from sqlmodel import Session, col, select

from storage.tables import Example, ExampleStatus, Split

MOST_TEXT_A_PAGE = 2 * 1024 * 1024
"""Characters of text after which a page of examples ends early."""

_ROWS_AT_ONCE = 50


@dataclass(frozen=True)
class Page:
    """Some examples by id, and whether there are ``more`` after them."""

    examples: list[Example]
    more: bool


def page(
    session: Session,
    adapter_id: int,
    *,
    after: int,
    limit: int,
    split: Split | None = None,
    status: ExampleStatus | None = None,
    external_id: str | None = None,
) -> Page:
    """Up to ``limit`` examples with ids above ``after``, by id, those that are as asked for.

    They are fewer where their text is beyond `MOST_TEXT_A_PAGE` characters; at least one, if
    there is any.
    """
    query = select(Example).where(Example.adapter_id == adapter_id, col(Example.id) > after)
    if split is not None:
        query = query.where(Example.split == split)
    if status is not None:
        query = query.where(Example.status == status)
    if external_id is not None:
        query = query.where(Example.external_id == external_id)
    query = query.order_by(col(Example.id)).limit(limit + 1)
    found: list[Example] = []
    size = 0
    for row in session.exec(query.execution_options(yield_per=_ROWS_AT_ONCE)):
        if len(found) == limit or size > MOST_TEXT_A_PAGE:
            return Page(found, more=True)
        found.append(row)
        size += len(row.input or "") + len(row.label or "")
    return Page(found, more=False)
