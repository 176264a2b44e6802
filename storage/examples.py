"""Examples: the labelled texts of an adapter, their splits and their states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from sqlalchemy import LargeBinary, func, update
from sqlalchemy import cast as as_type
from sqlmodel import Session, col, select

from storage.clock import now_ms
from storage.counting import ExampleCount
from storage.split import split_of, text_hash
from storage.tables import Adapter, Example, ExampleStatus, Split

T = TypeVar("T")

MOST_TEXT_A_PAGE = 2 * 1024 * 1024
"""Characters of text after which a page of examples ends early."""

_ROWS_AT_ONCE = 50
_IDS_A_QUERY = 500  # SQLite builds may allow no more than 999 parameters


@dataclass(frozen=True)
class NewExample:
    """An example as a client gives it; ``split=None`` leaves the split to the keyed hash."""

    input: str
    label: str
    split: Split | None = None
    external_id: str | None = None


@dataclass(frozen=True)
class ExampleText:
    """What training reads of an example.

    ``changed_at``, milliseconds since 1970 UTC, tells whether the text is still the one that was
    read at another time.
    """

    id: int
    input: str
    label: str
    changed_at: int


@dataclass(frozen=True)
class Counts:
    """How many examples an adapter has; ``pending + used == train``, expired ones apart.

    ``bytes`` is the size of the text of all of them.
    """

    train: int
    holdout: int
    pending: int
    used: int
    expired: int
    bytes: int


@dataclass(frozen=True)
class Page:
    """Some examples by id, and whether there are ``more`` after them."""

    examples: list[Example]
    more: bool


class ExampleConflictError(Exception):
    """The ``index``-th of the given examples contradicts another one in its ``field``."""

    def __init__(
        self, index: int, field: Literal["input", "split", "external_id"], message: str
    ) -> None:
        """Name the example, its field and what contradicts what."""
        super().__init__(message)
        self.index = index
        self.field = field


def add(session: Session, adapter: Adapter, given: Sequence[NewExample]) -> list[Example]:
    """Keep all of ``given`` (or, by raising, none) and return their rows in the same order.

    An ``external_id`` that the adapter has already corrects that row: text and label change, it is
    pending again (unless nothing changed), and it keeps its split, which is fixed for the
    example's life. Texts that are equal when normalised always share a split, so a holdout text
    is never trained on.

    Raises:
        ExampleConflictError: a split that contradicts an equal text or the row being corrected,
            or one ``external_id`` twice in ``given``.
    """
    hashes = [text_hash(adapter.key, example.input) for example in given]
    known = dict(_known_splits(session, adapter, hashes))
    correcting = dict(_by_external_id(session, adapter, given))
    seen: dict[str, int] = {}
    rows: list[Example] = []
    for index, (example, digest) in enumerate(zip(given, hashes, strict=True)):
        row = None
        if example.external_id is not None:
            first = seen.setdefault(example.external_id, index)
            if first != index:
                raise ExampleConflictError(
                    index,
                    "external_id",
                    f"this external_id was given by item {first} already; send each one once",
                )
            row = correcting.get(example.external_id)
        split = _split(index, example, row, known.get(digest), digest)
        known[digest] = split
        if row is None:
            row = Example(
                adapter_id=adapter.id,
                input=example.input,
                label=example.label,
                split=split,
                external_id=example.external_id,
                text_hash=digest,
            )
        elif (row.input, row.label) != (example.input, example.label):
            row.input, row.label, row.text_hash = example.input, example.label, digest
            row.status, row.changed_at = "pending", now_ms()
        rows.append(row)
    session.add_all(rows)
    session.flush()
    return rows


def _split(
    index: int, example: NewExample, row: Example | None, equal: Split | None, digest: bytes
) -> Split:
    if row is not None and example.split not in (None, row.split):
        raise ExampleConflictError(
            index,
            "split",
            f"this external_id is a {row.split} example for life; leave split out, "
            f"or send {row.split}",
        )
    wanted = row.split if row is not None else example.split
    if wanted is not None and equal is not None and wanted != equal:
        raise ExampleConflictError(
            index,
            "input" if row is not None else "split",
            f"the same text is a {equal} example already, and equal texts share a split; "
            f"send it as {equal}",
        )
    return wanted or equal or split_of(digest)


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


def find(session: Session, adapter_id: int, example_id: int) -> Example | None:
    """The adapter's example with that id."""
    return session.exec(
        select(Example).where(Example.adapter_id == adapter_id, Example.id == example_id)
    ).one_or_none()


def labels_of(session: Session, adapter_id: int, ids: Sequence[int]) -> dict[int, str]:
    """The labels of those of the examples that are still there with their text."""
    found: dict[int, str] = {}
    for part in _parts(ids):
        rows = session.exec(
            select(Example.id, Example.label).where(
                Example.adapter_id == adapter_id, col(Example.id).in_(part)
            )
        )
        found.update((row_id, label) for row_id, label in rows if label is not None)
    return found


def with_other_labels(
    session: Session, adapter_id: int, labels: Sequence[str], *, limit: int
) -> tuple[int, list[tuple[str, int]]]:
    """How many kept examples have none of ``labels``, and their most frequent labels.

    Of those, up to ``limit``, each with the number of examples that have it.
    """
    others = (
        Example.adapter_id == adapter_id,
        Example.status != "expired",
        col(Example.label).not_in(labels),
    )
    total = session.exec(select(func.count()).select_from(Example).where(*others)).one()
    if total == 0:
        return 0, []
    number = func.count()
    rows = session.exec(
        select(Example.label, number)
        .where(*others)
        .group_by(col(Example.label))
        .order_by(number.desc(), col(Example.label))
        .limit(limit)
    )
    return total, [(label, count) for label, count in rows if label is not None]


def longest_labels(
    session: Session, adapter_id: int, *, at_least: int, limit: int
) -> Sequence[str]:
    """Up to ``limit`` different labels of at least so many bytes, the longest first."""
    size = func.length(as_type(col(Example.label), LargeBinary))
    rows = session.exec(
        select(Example.label)
        .where(Example.adapter_id == adapter_id, size >= at_least)
        .distinct()
        .order_by(size.desc())
        .limit(limit)
    )
    return [label for label in rows if label is not None]


def counts(session: Session, adapter_id: int) -> Counts:
    """The adapter's numbers of examples."""
    rows = session.exec(select(ExampleCount).where(ExampleCount.adapter_id == adapter_id)).all()
    kept = [row for row in rows if row.status != "expired"]
    train = {row.status: row.examples for row in kept if row.split == "train"}
    pending, used = train.get("pending", 0), train.get("used", 0)
    return Counts(
        train=pending + used,
        holdout=sum(row.examples for row in kept if row.split == "holdout"),
        pending=pending,
        used=used,
        expired=sum(row.examples for row in rows if row.status == "expired"),
        bytes=sum(row.bytes for row in kept),
    )


def ids(session: Session, adapter_id: int, split: Split) -> Sequence[int]:
    """The ids of one split in ascending order, without the expired."""
    return session.exec(
        select(col(Example.id))
        .where(
            Example.adapter_id == adapter_id,
            Example.split == split,
            Example.status != "expired",
        )
        .order_by(col(Example.id))
    ).all()


def load_texts(session: Session, ids: Sequence[int]) -> list[ExampleText]:
    """The examples with these ids, in this order, without those gone or expired."""
    found: dict[int, ExampleText] = {}
    for part in _parts(ids):
        rows = session.exec(
            select(Example.id, Example.input, Example.label, Example.changed_at).where(
                col(Example.id).in_(part), Example.status != "expired"
            )
        )
        found.update((row[0], ExampleText(*row)) for row in rows)
    return [found[one] for one in ids if one in found]


def existing(session: Session, ids: Sequence[int]) -> set[int]:
    """Those of the ids whose example is still there, neither deleted nor expired."""
    found: set[int] = set()
    for part in _parts(ids):
        found.update(
            session.exec(
                select(col(Example.id)).where(
                    col(Example.id).in_(part), Example.status != "expired"
                )
            )
        )
    return found


def mark_used(session: Session, ids: Sequence[int], *, unchanged_since: int) -> None:
    """Mark examples as used by a finished run, except those corrected after that time (ms).

    The deleted and the expired stay what they are.
    """
    for part in _parts(ids):
        session.exec(
            update(Example)
            .where(
                col(Example.id).in_(part),
                col(Example.changed_at) <= unchanged_since,
                col(Example.status) != "expired",
            )
            .values(status="used")
        )


def _known_splits(
    session: Session, adapter: Adapter, hashes: Sequence[bytes]
) -> Iterator[tuple[bytes, Split]]:
    for part in _parts(hashes):
        rows = session.exec(
            select(Example.text_hash, Example.split)
            .where(Example.adapter_id == adapter.id, col(Example.text_hash).in_(part))
            .distinct()
        )
        yield from ((digest, cast(Split, split)) for digest, split in rows if digest is not None)


def _by_external_id(
    session: Session, adapter: Adapter, given: Sequence[NewExample]
) -> Iterator[tuple[str, Example]]:
    external_ids = [one.external_id for one in given if one.external_id is not None]
    for part in _parts(external_ids):
        rows = session.exec(
            select(Example).where(
                Example.adapter_id == adapter.id, col(Example.external_id).in_(part)
            )
        )
        yield from ((row.external_id, row) for row in rows if row.external_id is not None)


def _parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _IDS_A_QUERY):
        yield values[start : start + _IDS_A_QUERY]
