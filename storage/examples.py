"""Examples: the labelled texts of an adapter, their splits and their states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from sqlalchemy import insert, update
from sqlmodel import Session, col, select

from storage import erasures
from storage.clock import now_ms
from storage.counting import ExampleCount
from storage.forgetting import forget_digests
from storage.split import split_of, text_hash
from storage.tables import Adapter, Example, Split

T = TypeVar("T")

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
class Conflict:
    """The ``index``-th of the given examples contradicts another one in its ``field``."""

    index: int
    field: Literal["input", "split", "external_id"]
    message: str


class ExampleConflictError(Exception):
    """Some of the given examples contradict others; ``conflicts`` lists each by its index."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        """Name the examples, their fields and what contradicts what."""
        super().__init__("; ".join(conflict.message for conflict in conflicts))
        self.conflicts = conflicts


@dataclass(frozen=True)
class _Step:
    """An example to be kept: in a new row, or in the ``row`` that it ``corrects`` or repeats."""

    example: NewExample
    split: Split
    text_hash: bytes
    row: Example | None
    corrects: bool


@dataclass(frozen=True)
class Plan:
    """What `keep` will do, and what it will add to what the client has: see `storage.usage`.

    ``more_bytes`` is by how much the kept text grows (less than 0 where corrections are shorter),
    ``more_pending`` by how many the training examples grow that wait for a training.
    """

    steps: list[_Step]
    more_bytes: int
    more_pending: int


@dataclass(frozen=True)
class Kept:
    """An example that is kept, and its split; ``replaces`` another text of it, or doesn't."""

    id: int
    split: Split
    replaces: bool


def add(session: Session, adapter: Adapter, given: Sequence[NewExample]) -> list[Example]:
    """`plan` and `keep` in one; the rows in the order they were given."""
    kept = keep(session, adapter, plan(session, adapter, given))
    found: dict[int, Example] = {}
    for part in in_parts([one.id for one in kept]):
        rows = session.exec(select(Example).where(col(Example.id).in_(part)))
        found.update((row.id, row) for row in rows)
    return [found[one.id] for one in kept]


def plan(session: Session, adapter: Adapter, given: Sequence[NewExample]) -> Plan:
    """Decide what becomes of ``given``, in the writer's session; nothing is changed yet.

    An ``external_id`` that the adapter has already corrects that row: text and label change, it is
    pending again (unless nothing changed), and it keeps its split, which is fixed for the
    example's life. Texts that are equal when normalised always share a split, so a holdout text
    is never trained on.

    Raises:
        ExampleConflictError: splits that contradict an equal text or the row being corrected, or
            one ``external_id`` twice in ``given``.
    """
    hashes = [text_hash(adapter.key, example.input) for example in given]
    known = dict(_known_splits(session, adapter, hashes))
    correcting = dict(_by_external_id(session, adapter, given))
    seen: set[str] = set()
    steps: list[_Step] = []
    conflicts: list[Conflict] = []
    for index, (example, digest) in enumerate(zip(given, hashes, strict=True)):
        row = None
        if example.external_id is not None:
            if example.external_id in seen:
                message = "this external_id occurs earlier in the request; send each one once"
                conflicts.append(Conflict(index, "external_id", message))
                continue
            seen.add(example.external_id)
            row = correcting.get(example.external_id)
        conflict = _split_conflict(index, example, row, known.get(digest))
        if conflict is not None:
            conflicts.append(conflict)
            continue
        split = row.split if row else example.split or known.get(digest) or split_of(digest)
        known[digest] = split
        corrects = row is not None and (row.input, row.label) != (example.input, example.label)
        steps.append(_Step(example, split, digest, row, corrects))
    if conflicts:
        raise ExampleConflictError(conflicts)
    return Plan(steps, sum(map(_more_bytes, steps)), sum(map(_more_pending, steps)))


def keep(session: Session, adapter: Adapter, plan: Plan) -> list[Kept]:
    """Keep what was planned in the same transaction; what was kept in the order it was given.

    An expired example that is corrected begins anew: its age counts from now. The text that a
    correction replaces is to be erased, and no hash of it may stay.
    """
    now = now_ms()
    replaced = 0
    for step in plan.steps:
        row = step.row
        if row is None or not step.corrects:
            continue
        if row.status == "expired":
            row.created_at = now
        else:
            replaced += 1
        row.input, row.label, row.text_hash = step.example.input, step.example.label, step.text_hash
        row.status, row.changed_at = "pending", now
        session.add(row)
    session.flush()
    if replaced:
        forget_digests(session, adapter.id)
        erasures.grow(session, "correction", adapter.client_id, replaced)
    new_ids = iter(_insert(session, adapter, [step for step in plan.steps if not step.row], now))
    return [
        Kept(step.row.id if step.row else next(new_ids), step.split, step.corrects)
        for step in plan.steps
    ]


def _insert(session: Session, adapter: Adapter, steps: Sequence[_Step], now: int) -> Sequence[int]:
    if not steps:
        return []
    # Twice as fast as adding objects; a batch of NDJSON holds the writer that much shorter.
    return session.scalars(
        insert(Example).returning(col(Example.id), sort_by_parameter_order=True),
        [
            {
                "adapter_id": adapter.id,
                "input": step.example.input,
                "label": step.example.label,
                "split": step.split,
                "external_id": step.example.external_id,
                "status": "pending",
                "text_hash": step.text_hash,
                "created_at": now,
                "changed_at": now,
            }
            for step in steps
        ],
    ).all()


def _split_conflict(
    index: int, example: NewExample, row: Example | None, equal: Split | None
) -> Conflict | None:
    if row is not None and example.split not in (None, row.split):
        return Conflict(
            index,
            "split",
            f"this external_id is a {row.split} example for life; leave split out, "
            f"or send {row.split}",
        )
    wanted = row.split if row is not None else example.split
    if wanted is not None and equal is not None and wanted != equal:
        return Conflict(
            index,
            "input" if row is not None else "split",
            f"the same text is a {equal} example already, and equal texts share a split; "
            f"send it as {equal}",
        )
    return None


def _more_bytes(step: _Step) -> int:
    before = 0 if step.row is None else _size(step.row.input) + _size(step.row.label)
    return _size(step.example.input) + _size(step.example.label) - before


def _more_pending(step: _Step) -> int:
    if step.split == "holdout":
        return 0
    return int(step.row is None or (step.corrects and step.row.status != "pending"))


def _size(text: str | None) -> int:
    return len((text or "").encode())


def find(session: Session, adapter_id: int, example_id: int) -> Example | None:
    """The adapter's example with that id."""
    return session.exec(
        select(Example).where(Example.adapter_id == adapter_id, Example.id == example_id)
    ).one_or_none()


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
    for part in in_parts(ids):
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
    for part in in_parts(ids):
        found.update(
            session.exec(
                select(col(Example.id)).where(
                    col(Example.id).in_(part), Example.status != "expired"
                )
            )
        )
    return found


def last_changed(session: Session, ids: Sequence[int]) -> dict[int, int]:
    """When the text of each example that still has one was last changed (ms since 1970 UTC)."""
    found: dict[int, int] = {}
    for part in in_parts(ids):
        found.update(
            session.exec(
                select(Example.id, Example.changed_at).where(
                    col(Example.id).in_(part), Example.status != "expired"
                )
            ).all()
        )
    return found


def mark_used(session: Session, ids: Sequence[int], *, unchanged_since: int) -> None:
    """Mark pending examples as used by a finished run, except those corrected after that time (ms).

    The deleted and the expired stay what they are.
    """
    for part in in_parts(ids):
        session.exec(
            update(Example)
            .where(
                col(Example.id).in_(part),
                col(Example.changed_at) <= unchanged_since,
                col(Example.status) == "pending",
            )
            .values(status="used")
        )


def _known_splits(
    session: Session, adapter: Adapter, hashes: Sequence[bytes]
) -> Iterator[tuple[bytes, Split]]:
    for part in in_parts(hashes):
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
    for part in in_parts(external_ids):
        rows = session.exec(
            select(Example).where(
                Example.adapter_id == adapter.id, col(Example.external_id).in_(part)
            )
        )
        yield from ((row.external_id, row) for row in rows if row.external_id is not None)


def in_parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many at a time as a query may have parameters."""
    for start in range(0, len(values), _IDS_A_QUERY):
        yield values[start : start + _IDS_A_QUERY]
