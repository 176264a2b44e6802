"""The tables, and the rules that hold in them whatever the code above them does.

A SQLModel class with ``table=True`` validates nothing, so every rule that must hold is a CHECK, a
UNIQUE or a foreign key of the file itself. Times are integers, milliseconds since 1970 UTC. Ids
are never given out twice (AUTOINCREMENT): a run's list of example ids and the folders named after
runs and adapters stay unambiguous after deletions.
"""

import secrets
from typing import Any, Literal, get_args

from sqlalchemy import Index, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from storage import columns
from storage.clock import now_ms

Split = Literal["train", "holdout"]
ExampleStatus = Literal["pending", "used", "expired"]
RunStatus = Literal[
    "queued", "running", "paused", "interrupted", "completed", "failed", "cancelled"
]
Wanted = Literal["pause", "cancel", "resume"]
Origin = Literal["request", "night"]
TooLong = Literal["refuse", "cut"]
Verdict = Literal["promoted", "rejected", "insufficient", "imported"]

UNFINISHED: tuple[RunStatus, ...] = ("queued", "running", "paused", "interrupted")
"""The states of a run that can still go on; an adapter has at most one such run."""

MOST_TEXT = 100_000
"""Characters of an example's input; the schemas refuse longer ones first."""


_NEVER_REUSE_IDS = {"sqlite_autoincrement": True}


class Client(SQLModel, table=True):
    """An app, or the owner, with the SHA-256 of its bearer token (the token itself is not kept).

    ``token_hash`` is NULL once the token is revoked. ``key_id`` names the server key by which the
    daemon proves itself to this client. ``key`` keys the hashes of what the client has sent. A
    quota that is NULL is no limit.
    """

    __tablename__ = "clients"
    __table_args__ = (
        columns.is_text("name", 64),
        columns.is_blob("token_hash", 32, "sha256", optional=True),
        columns.is_text("key_id", 64),
        columns.is_blob("key", 32, "32_bytes"),
        columns.is_json("scopes", "array"),
        columns.is_count("examples_per_day", 1, optional=True),
        columns.is_count("most_bytes", 1, optional=True),
        columns.is_count("most_pending", 1, optional=True),
        columns.is_time("created_at"),
        columns.is_time("paired_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    name: str = Field(sa_type=Text, unique=True)
    token_hash: bytes | None = Field(default=None, unique=True)
    key_id: str = Field(default_factory=lambda: secrets.token_hex(16), sa_type=Text, unique=True)
    key: bytes = Field(default_factory=lambda: secrets.token_bytes(32))
    scopes: list[str] = Field(default_factory=list, sa_type=columns.Json)
    examples_per_day: int | None = None
    most_bytes: int | None = None
    most_pending: int | None = None
    created_at: int = Field(default_factory=now_ms)
    paired_at: int = Field(default_factory=now_ms)


class Adapter(SQLModel, table=True):
    """A named LoRA of one client on one base model, with what its runs are made with.

    ``top_layers`` is how many layers have a LoRA, counted from the top (NULL: all of them).
    ``key`` (32 random bytes) keys every hash of this adapter's texts. ``keep_days`` and
    ``max_examples`` bound how long and how many examples are kept, ``keep_versions`` how many
    versions (NULL: no bound). ``last_version`` is the highest number that a version was ever given.
    ``revision`` counts the changes of the settings.
    """

    __tablename__ = "adapters"
    __table_args__ = (
        UniqueConstraint("client_id", "name"),
        columns.is_text("name", 64),
        columns.is_text("base_model", 64),
        columns.is_text("base_hash", 128),
        columns.is_text("method", 32),
        columns.check("rank_in_range", "typeof(rank) = 'integer' AND rank BETWEEN 1 AND 64"),
        columns.check("alpha_in_range", "typeof(alpha) = 'real' AND alpha > 0 AND alpha <= 1e4"),
        columns.is_json("targets", "array"),
        columns.is_flag("use_rslora"),
        columns.is_count("top_layers", 1, optional=True),
        columns.is_json("labels", "array", optional=True),
        columns.check("max_tokens_in_range", "typeof(max_tokens) = 'integer' AND max_tokens > 0"),
        columns.is_one_of("too_long", "refuse", "cut"),
        columns.is_json("training", "object"),
        columns.is_json("night", "object"),
        columns.is_blob("key", 32, "32_bytes"),
        columns.is_count("keep_days", 1, optional=True),
        columns.is_count("max_examples", 1, optional=True),
        columns.is_count("keep_versions", 1, optional=True),
        columns.is_count("last_version"),
        columns.is_count("revision", 1),
        columns.is_time("created_at"),
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
    targets: list[str] = Field(sa_type=columns.Json)
    use_rslora: bool
    top_layers: int | None = None
    labels: list[str] | None = Field(default=None, sa_type=columns.Json)
    max_tokens: int
    too_long: TooLong = Field(sa_type=Text)
    training: dict[str, Any] = Field(sa_type=columns.Json)
    night: dict[str, Any] = Field(default_factory=dict, sa_type=columns.Json)
    key: bytes = b""  # drawn by adapters.create
    keep_days: int | None = None
    max_examples: int | None = None
    keep_versions: int | None = None
    last_version: int = 0
    revision: int = 1
    created_at: int = Field(default_factory=now_ms)


class Example(SQLModel, table=True):
    """One labelled text of an adapter. ``text_hash`` is the keyed hash of its normalised input.

    Of an expired example only the shell is left: no input, no label, no hash.
    """

    __tablename__ = "examples"
    __table_args__ = (
        UniqueConstraint("adapter_id", "external_id"),
        Index("examples_by_text", "adapter_id", "text_hash"),
        Index("examples_by_adapter", "adapter_id", "id"),
        Index(
            "examples_by_age",
            "adapter_id",
            "created_at",
            sqlite_where=text("status <> 'expired'"),
        ),
        columns.is_text("input", MOST_TEXT, optional=True),
        columns.is_text("label", MOST_TEXT, optional=True),
        columns.is_one_of("split", "train", "holdout"),
        columns.is_text("external_id", 200, optional=True),
        columns.is_one_of("status", "pending", "used", "expired"),
        columns.is_blob("text_hash", 32, "sha256", optional=True),
        columns.check(
            "only_expired_have_no_text",
            "(status = 'expired') = (input IS NULL) AND (status = 'expired') = (label IS NULL) "
            "AND (status = 'expired') = (text_hash IS NULL)",
        ),
        columns.is_time("created_at"),
        columns.is_time("changed_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    adapter_id: int = Field(foreign_key="adapters.id")
    input: str | None = Field(sa_type=Text)
    label: str | None = Field(sa_type=Text)
    split: Split = Field(sa_type=Text)
    external_id: str | None = Field(default=None, sa_type=Text)
    status: ExampleStatus = Field(default="pending", sa_type=Text)
    text_hash: bytes | None
    created_at: int = Field(default_factory=now_ms)
    changed_at: int = Field(default_factory=now_ms)


class Run(SQLModel, table=True):
    """One training of an adapter. ``losses`` is a thinned list of ``[step, loss]``.

    ``error`` says in words why the run failed, was paused, cancelled or interrupted. ``wanted`` is
    what was asked of it while its worker was still at work. ``forgotten`` counts the examples it
    goes on without, because they were deleted or expired since it began. ``warm_start`` is the
    number of the version that it began with (NULL: with a fresh adapter).
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index("runs_by_adapter", "adapter_id"),
        Index(
            "one_unfinished_run_per_adapter",
            "adapter_id",
            unique=True,
            sqlite_where=text("status IN ('queued', 'running', 'paused', 'interrupted')"),
        ),
        Index("one_running_run", "status", unique=True, sqlite_where=text("status = 'running'")),
        columns.is_one_of("status", *get_args(RunStatus)),
        columns.is_one_of("wanted", *get_args(Wanted)),
        columns.is_one_of("origin", *get_args(Origin)),
        columns.is_flag("in_window"),
        columns.is_flag("override"),
        columns.is_count("warm_start", 1, optional=True),
        columns.is_count("forgotten"),
        columns.is_count("step"),
        columns.is_count("checkpoint_step", optional=True),
        columns.is_count("kills"),
        columns.is_count("crashes"),
        columns.is_count("crash_step", optional=True),
        columns.is_count("halvings"),
        columns.is_time("not_before", optional=True),
        columns.is_time("worked_at", optional=True),
        columns.check(
            "total_steps_in_range",
            "total_steps IS NULL OR (typeof(total_steps) = 'integer' AND total_steps > 0)",
        ),
        columns.is_json("engine", "object", optional=True),
        columns.is_flag("exact_resume"),
        columns.is_json("losses", "array"),
        columns.is_time("created_at"),
        columns.is_time("started_at", optional=True),
        columns.is_time("finished_at", optional=True),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    adapter_id: int = Field(foreign_key="adapters.id")
    status: RunStatus = Field(default="queued", sa_type=Text)
    wanted: Wanted | None = Field(default=None, sa_type=Text)
    origin: Origin = Field(default="request", sa_type=Text)
    in_window: bool = False
    override: bool = False
    warm_start: int | None = None
    forgotten: int = 0
    phase: str | None = Field(default=None, sa_type=Text)
    step: int = 0
    total_steps: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    epoch: float | None = None
    evaluated: int | None = None
    evaluating_total: int | None = None
    resumed_from: int | None = None
    engine: dict[str, Any] | None = Field(default=None, sa_type=columns.Json)
    error: str | None = Field(default=None, sa_type=Text)
    exact_resume: bool | None = None
    exact_resume_reason: str | None = Field(default=None, sa_type=Text)
    losses: list[list[float]] = Field(default_factory=list, sa_type=columns.Json)
    checkpoint_step: int | None = None
    kills: int = 0
    crashes: int = 0
    crash_step: int | None = None
    halvings: int = 0
    not_before: int | None = None
    worked_at: int | None = None
    created_at: int = Field(default_factory=now_ms)
    started_at: int | None = None
    finished_at: int | None = None


class Version(SQLModel, table=True):
    """A finished, immutable adapter: where its folder lies, what it measured, and our verdict.

    ``seen`` holds the ids of the examples it was trained or measured on, as ranges
    ``[first, last]``; NULL where that isn't known. ``seen_deleted`` counts how many of them have
    been deleted or have expired since. One that was imported has no run. ``activated_at`` is when
    it last became active, ``activated_by`` the client that decided so; NULL: it was promoted.
    """

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("adapter_id", "number"),
        Index(
            "one_active_version_per_adapter",
            "adapter_id",
            unique=True,
            sqlite_where=text("active = 1"),
        ),
        columns.is_count("number", 1),
        columns.is_text("path", 300),
        columns.is_json("metrics", "object"),
        columns.is_json("manifest", "object"),
        columns.is_one_of("verdict", *get_args(Verdict)),
        columns.check("only_imported_have_no_run", "(verdict = 'imported') = (run_id IS NULL)"),
        columns.is_text("verdict_reason", 1000),
        columns.is_flag("active"),
        columns.is_time("activated_at", optional=True),
        columns.is_text("activated_by", 64, optional=True),
        columns.is_json("seen", "array", optional=True),
        columns.is_count("seen_deleted"),
        columns.is_time("created_at"),
        _NEVER_REUSE_IDS,
    )

    id: int = Field(default=None, primary_key=True)  # given by the database
    adapter_id: int = Field(foreign_key="adapters.id")
    number: int = 0  # counted by versions.add
    run_id: int | None = Field(default=None, foreign_key="runs.id", unique=True)
    path: str = Field(sa_type=Text)
    metrics: dict[str, Any] = Field(sa_type=columns.Json)
    manifest: dict[str, Any] = Field(sa_type=columns.Json)
    verdict: Verdict = Field(sa_type=Text)
    verdict_reason: str = Field(sa_type=Text)
    active: bool = False
    activated_at: int | None = None
    activated_by: str | None = Field(default=None, sa_type=Text)
    seen: list[list[int]] | None = Field(default=None, sa_type=columns.Json)
    seen_deleted: int = 0
    created_at: int = Field(default_factory=now_ms)
