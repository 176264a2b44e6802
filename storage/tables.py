"""The tables, and the rules that hold in them whatever the code above them does.

A SQLModel class with ``table=True`` validates nothing, so every rule that must hold is a CHECK, a
UNIQUE or a foreign key of the file itself. Times are integers, milliseconds since 1970 UTC. Ids
are never given out twice (AUTOINCREMENT): a run's list of example ids and the folders named after
runs and adapters stay unambiguous after deletions.
"""

import json
from typing import Any, Literal

from sqlalchemy import CheckConstraint, Dialect, Index, Text, UniqueConstraint, text
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from storage.clock import now_ms

Split = Literal["train", "holdout"]
ExampleStatus = Literal["pending", "used"]
RunStatus = Literal["queued", "running", "interrupted", "completed", "failed"]
TooLong = Literal["refuse", "cut"]
Verdict = Literal["promoted", "rejected", "insufficient"]

UNFINISHED: tuple[RunStatus, ...] = ("queued", "running", "interrupted")
"""The states of a run that can still go on; an adapter has at most one such run."""

MOST_TEXT = 100_000
"""Characters of an example's input; the schemas refuse longer ones first."""


class Json(TypeDecorator[Any]):
    """A JSON value as compact text; ``None`` is SQL NULL; NaN and infinities are refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The text to store."""
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value that was stored."""
        return None if value is None else json.loads(value)


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


def _text(column: str, most: int, *, optional: bool = False) -> CheckConstraint:
    # length() stops at a NUL, so NUL is refused on its own.
    rule = (
        f"typeof({column}) = 'text' AND length({column}) BETWEEN 1 AND {most} "
        f"AND instr({column}, char(0)) = 0"
    )
    return _check(f"{column}_is_text", f"{column} IS NULL OR ({rule})" if optional else rule)


def _json(column: str, kind: str, *, optional: bool = False) -> CheckConstraint:
    rule = f"json_valid({column}) AND json_type({column}) = '{kind}'"
    return _check(f"{column}_is_json", f"{column} IS NULL OR ({rule})" if optional else rule)


def _one_of(column: str, *values: str) -> CheckConstraint:
    return _check(f"{column}_is_known", f"{column} IN ({', '.join(repr(v) for v in values)})")


def _flag(column: str) -> CheckConstraint:
    # For NULL the condition is NULL, which a CHECK lets pass: NOT NULL guards where it must.
    return _check(f"{column}_is_flag", f"{column} IN (0, 1)")


def _time(column: str, *, optional: bool = False) -> CheckConstraint:
    rule = f"typeof({column}) = 'integer' AND {column} > 0"
    return _check(f"{column}_is_time", f"{column} IS NULL OR ({rule})" if optional else rule)


_NEVER_REUSE_IDS = {"sqlite_autoincrement": True}


class Client(SQLModel, table=True):
    """An app, or the owner, with the SHA-256 of its bearer token (the token itself is not kept)."""

    __tablename__ = "clients"
    __table_args__ = (
        _text("name", 64),
        _check("token_hash_is_sha256", "typeof(token_hash) = 'blob' AND length(token_hash) = 32"),
        _time("created_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    name: str = Field(sa_type=Text, unique=True)
    token_hash: bytes = Field(unique=True)
    created_at: int = Field(default_factory=now_ms)


class Adapter(SQLModel, table=True):
    """A named LoRA of one client on one base model, with what its runs are made with.

    ``key`` (32 random bytes) keys every hash of this adapter's texts.
    """

    __tablename__ = "adapters"
    __table_args__ = (
        UniqueConstraint("client_id", "name"),
        _text("name", 64),
        _text("base_model", 64),
        _text("base_hash", 128),
        _text("method", 32),
        _check("rank_in_range", "typeof(rank) = 'integer' AND rank BETWEEN 1 AND 64"),
        _check("alpha_in_range", "typeof(alpha) = 'real' AND alpha > 0 AND alpha <= 1e4"),
        _json("targets", "array"),
        _flag("use_rslora"),
        _json("labels", "array", optional=True),
        _check("max_tokens_in_range", "typeof(max_tokens) = 'integer' AND max_tokens > 0"),
        _one_of("too_long", "refuse", "cut"),
        _json("training", "object"),
        _check("key_is_32_bytes", "typeof(key) = 'blob' AND length(key) = 32"),
        _time("created_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    client_id: int = Field(foreign_key="clients.id")
    name: str = Field(sa_type=Text)
    base_model: str = Field(sa_type=Text)
    base_hash: str = Field(sa_type=Text)
    method: str = Field(sa_type=Text)
    rank: int
    alpha: float
    targets: list[str] = Field(sa_type=Json)
    use_rslora: bool
    labels: list[str] | None = Field(default=None, sa_type=Json)
    max_tokens: int
    too_long: TooLong = Field(sa_type=Text)
    training: dict[str, Any] = Field(sa_type=Json)
    key: bytes = b""  # drawn by adapters.create
    created_at: int = Field(default_factory=now_ms)


class Example(SQLModel, table=True):
    """One labelled text of an adapter. ``text_hash`` is the keyed hash of its normalised input."""

    __tablename__ = "examples"
    __table_args__ = (
        UniqueConstraint("adapter_id", "external_id"),
        Index("examples_by_text", "adapter_id", "text_hash"),
        Index("examples_by_split", "adapter_id", "split", "status"),
        _text("input", MOST_TEXT),
        _text("label", MOST_TEXT),
        _one_of("split", "train", "holdout"),
        _text("external_id", 200, optional=True),
        _one_of("status", "pending", "used"),
        _check("text_hash_is_sha256", "typeof(text_hash) = 'blob' AND length(text_hash) = 32"),
        _time("created_at"),
        _time("changed_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    adapter_id: int = Field(foreign_key="adapters.id")
    input: str = Field(sa_type=Text)
    label: str = Field(sa_type=Text)
    split: Split = Field(sa_type=Text)
    external_id: str | None = Field(default=None, sa_type=Text)
    status: ExampleStatus = Field(default="pending", sa_type=Text)
    text_hash: bytes
    created_at: int = Field(default_factory=now_ms)
    changed_at: int = Field(default_factory=now_ms)


class Run(SQLModel, table=True):
    """One training of an adapter. ``losses`` is a thinned list of ``[step, loss]``.

    ``error`` says in words why the run failed or was interrupted.
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index("runs_by_adapter", "adapter_id"),
        Index(
            "one_unfinished_run_per_adapter",
            "adapter_id",
            unique=True,
            sqlite_where=text("status IN ('queued', 'running', 'interrupted')"),
        ),
        Index("one_running_run", "status", unique=True, sqlite_where=text("status = 'running'")),
        _one_of("status", "queued", "running", "interrupted", "completed", "failed"),
        _check("step_in_range", "typeof(step) = 'integer' AND step >= 0"),
        _check(
            "total_steps_in_range",
            "total_steps IS NULL OR (typeof(total_steps) = 'integer' AND total_steps > 0)",
        ),
        _json("engine", "object", optional=True),
        _flag("exact_resume"),
        _json("losses", "array"),
        _time("created_at"),
        _time("started_at", optional=True),
        _time("finished_at", optional=True),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    adapter_id: int = Field(foreign_key="adapters.id")
    status: RunStatus = Field(default="queued", sa_type=Text)
    phase: str | None = Field(default=None, sa_type=Text)
    step: int = 0
    total_steps: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    epoch: float | None = None
    evaluated: int | None = None
    evaluating_total: int | None = None
    resumed_from: int | None = None
    engine: dict[str, Any] | None = Field(default=None, sa_type=Json)
    error: str | None = Field(default=None, sa_type=Text)
    exact_resume: bool | None = None
    exact_resume_reason: str | None = Field(default=None, sa_type=Text)
    losses: list[list[float]] = Field(default_factory=list, sa_type=Json)
    created_at: int = Field(default_factory=now_ms)
    started_at: int | None = None
    finished_at: int | None = None


class Version(SQLModel, table=True):
    """A finished, immutable adapter: where its folder lies, what it measured, and our verdict."""

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("adapter_id", "number"),
        Index(
            "one_active_version_per_adapter",
            "adapter_id",
            unique=True,
            sqlite_where=text("active = 1"),
        ),
        _check("number_in_range", "typeof(number) = 'integer' AND number > 0"),
        _text("path", 300),
        _json("metrics", "object"),
        _json("manifest", "object"),
        _one_of("verdict", "promoted", "rejected", "insufficient"),
        _text("verdict_reason", 1000),
        _flag("active"),
        _time("created_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    adapter_id: int = Field(foreign_key="adapters.id")
    number: int = 0  # counted by versions.add
    run_id: int = Field(foreign_key="runs.id", unique=True)
    path: str = Field(sa_type=Text)
    metrics: dict[str, Any] = Field(sa_type=Json)
    manifest: dict[str, Any] = Field(sa_type=Json)
    verdict: Verdict = Field(sa_type=Text)
    verdict_reason: str = Field(sa_type=Text)
    active: bool = False
    created_at: int = Field(default_factory=now_ms)


TABLES = SQLModel.metadata
