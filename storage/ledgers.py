"""The tables beside the nouns: usage, idempotency, erasures, history, schedule, nights, pause."""

from typing import Any, Literal

from sqlalchemy import Index, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from storage import columns
from storage.clock import now_ms

ErasedWhat = Literal["examples", "adapter", "client", "version", "retention", "correction"]


class DailyUsage(SQLModel, table=True):
    """How many examples a client has sent on one day (days since 1970 UTC)."""

    __tablename__ = "daily_usage"
    __table_args__ = (columns.is_count("examples"), {"sqlite_with_rowid": False})

    client_id: int = Field(primary_key=True, foreign_key="clients.id")
    day: int = Field(primary_key=True)
    examples: int


class IdempotencyRecord(SQLModel, table=True):
    """What a request with an Idempotency-Key was answered.

    ``digest`` is a keyed hash of method, path and body. It is NULL once examples of the adapter
    were deleted: a deleted text leaves nothing by which a guess of it could be tested.
    """

    __tablename__ = "idempotency_records"
    __table_args__ = (
        UniqueConstraint("client_id", "key"),
        Index("idempotency_records_by_adapter", "adapter_id"),
        Index("idempotency_records_by_age", "created_at"),
        columns.is_text("key", 200),
        columns.is_blob("digest", 32, "sha256", optional=True),
        columns.is_count("status", 200),
        columns.is_text("location", 300, optional=True),
        columns.is_json("answer", "object"),
        columns.is_time("created_at"),
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    client_id: int = Field(foreign_key="clients.id")
    adapter_id: int | None = Field(default=None, foreign_key="adapters.id")
    key: str = Field(sa_type=Text)
    digest: bytes | None
    status: int
    location: str | None = Field(default=None, sa_type=Text)
    answer: dict[str, Any] = Field(sa_type=columns.Json)
    created_at: int = Field(default_factory=now_ms)


class Erasure(SQLModel, table=True):
    """A deletion whose last traces (the write-ahead log, folders) may still have to go.

    ``client_id`` is no foreign key: the client itself may be what was deleted. ``paths`` are
    relative to the home.
    """

    __tablename__ = "erasures"
    __table_args__ = (
        columns.is_one_of(
            "what", "examples", "adapter", "client", "version", "retention", "correction"
        ),
        columns.is_count("examples"),
        columns.is_json("paths", "array"),
        columns.is_time("requested_at"),
        columns.is_time("erased_at", optional=True),
        {"sqlite_autoincrement": True},
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    client_id: int | None = None
    what: ErasedWhat = Field(sa_type=Text)
    examples: int = 0
    paths: list[str] = Field(default_factory=list, sa_type=columns.Json)
    requested_at: int = Field(default_factory=now_ms)
    erased_at: int | None = None


class HistoryEntry(SQLModel, table=True):
    """Something that happened, in words without any example's text.

    ``client_id`` NULL: it concerns the whole daemon, and only the owner sees it.
    """

    __tablename__ = "history"
    __table_args__ = (
        Index("history_by_client", "client_id", "id"),
        columns.is_text("kind", 40),
        columns.is_text("message", 1000),
        columns.is_time("at"),
        {"sqlite_autoincrement": True},
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    at: int = Field(default_factory=now_ms)
    client_id: int | None = Field(default=None, foreign_key="clients.id")
    adapter: str | None = Field(default=None, sa_type=Text)
    run_id: int | None = None
    kind: str = Field(sa_type=Text)
    message: str = Field(sa_type=Text)


class ScheduleRow(SQLModel, table=True):
    """The one schedule: windows of local time in which training may proceed."""

    __tablename__ = "schedule"
    __table_args__ = (
        columns.check("one_row", "id = 1"),
        columns.is_json("windows", "array"),
        columns.is_count("revision", 1),
        columns.is_time("changed_at"),
    )

    id: int = Field(default=1, primary_key=True)
    windows: list[dict[str, Any]] = Field(sa_type=columns.Json)
    revision: int = 1
    changed_at: int = Field(default_factory=now_ms)


class Night(SQLModel, table=True):
    """One opening of a window, and what the battery did in it.

    ``key`` names it by the local date and time at which its window begins, so that a phone that
    changes its zone or its clock is still in the same night. ``first_level`` and ``last_level`` are
    percent, ``hottest`` the battery's highest reading in °C.
    """

    __tablename__ = "nights"
    __table_args__ = (
        columns.is_text("key", 40),
        columns.is_time("opened_at"),
        columns.is_time("closed_at", optional=True),
        {"sqlite_autoincrement": True},
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    key: str = Field(sa_type=Text, unique=True)
    opened_at: int = Field(default_factory=now_ms)
    closed_at: int | None = None
    first_level: float | None = None
    last_level: float | None = None
    hottest: float | None = None


class NightUsage(SQLModel, table=True):
    """How long an adapter was trained in one night, in seconds with those of suspend."""

    __tablename__ = "night_usage"
    __table_args__ = (
        columns.check("seconds_in_range", "typeof(seconds) = 'real' AND seconds >= 0"),
        {"sqlite_with_rowid": False},
    )

    night_id: int = Field(primary_key=True, foreign_key="nights.id")
    adapter_id: int = Field(primary_key=True, foreign_key="adapters.id")
    seconds: float


class TrainingPause(SQLModel, table=True):
    """The user's pause of all training, if there is a row; ``until`` NULL: until it is ended."""

    __tablename__ = "training_pause"
    __table_args__ = (
        columns.check("one_row", "id = 1"),
        columns.is_time("since"),
        columns.is_time("until", optional=True),
    )

    id: int = Field(default=1, primary_key=True)
    since: int = Field(default_factory=now_ms)
    until: int | None = None
