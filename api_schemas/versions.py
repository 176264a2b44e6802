"""Versions: finished adapters with their measurements."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api_schemas.base import NEXT, Answer, Timestamp


class Measures(BaseModel):
    """What was measured on the holdout. Null where it can't be: no labels, or no holdout."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    loss: float | None = Field(default=None, description="Mean NLL per answer token.")
    label_nll: float | None = Field(
        default=None, description="NLL of the label, normalised over the declared labels."
    )
    accuracy: float | None = Field(default=None, ge=0, le=1)


class OriginalMeasures(Measures):
    """The version on the base model as it was before it was kept in few bits."""

    reason: str | None = Field(default=None, description="Why nothing was measured.")


class Metrics(BaseModel):
    """A version's measurements, all on the same holdout rows."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    holdout: int = Field(ge=0, description="Rows measured on.")
    train: int = Field(ge=0, description="Rows trained on.")
    before: Measures = Field(description="The base model.")
    after: Measures = Field(description="The base model with this version.")
    active: Measures | None = Field(default=None, description="The version active before.")
    original_base: OriginalMeasures | None = Field(
        default=None,
        description="With this version on the base model's original, where apps outside load it.",
    )
    majority_accuracy: float | None = Field(default=None, ge=0, le=1)
    recency_prior_accuracy: float | None = Field(default=None, ge=0, le=1)


class EngineSwitch(Answer):
    """Another engine took over the frozen products amid the run."""

    model_config = ConfigDict(serialize_by_alias=True)

    step: int = Field(ge=0, description="The last step before it.")
    before: str = Field(alias="from")
    after: str = Field(alias="to")
    why: str


class Imported(Answer):
    """Where an imported version comes from, as its own files say."""

    base_model: str | None = Field(description="What its adapter_config.json calls its base.")
    base_known: bool = Field(
        description="Whether the files name the base by its hash, as those that lorad made do; "
        "false: only the names and shapes of the tensors were compared."
    )
    dtype: str = Field(description="Of its tensors; they are kept as fp32.")


class Version(Answer):
    """A finished adapter and what became of it."""

    number: int
    run: int | None = Field(description="The run that made it; null: it was imported.")
    imported: Imported | None = Field(description="Null: a run made it.")
    warm_start: int | None = Field(
        description="The number of the version that its run began with; null: with a fresh adapter."
    )
    created_at: Timestamp
    verdict: Literal["promoted", "rejected", "insufficient", "imported"] = Field(
        description="lorad itself activates what is promoted, and nothing else. imported: it has "
        "not been measured."
    )
    verdict_reason: str
    active: bool
    activated_at: Timestamp | None = Field(description="When it last became active.")
    activated_by: str | None = Field(
        description="The client that decided so; null: lorad did, because it was promoted."
    )
    files_gone: bool = Field(
        description="Its files are missing from the home folder: it can be neither activated, nor "
        "downloaded, nor begun with."
    )
    metrics: Metrics
    base_hash: str
    exact_resume: bool | None = Field(description="Null: no run made it.")
    exact_resume_reason: str | None = Field(description="Why it isn't the same run any more.")
    engine_switches: list[EngineSwitch] = Field(description="Where an engine was given up.")
    engine: dict[str, Any] | None = Field(description="Null: no run made it.")
    seen_deleted: int = Field(
        description="Examples it was trained or measured on that are deleted or expired since."
    )


class VersionDetail(Version):
    """A version with its holdout, row by row.

    A row's ``label`` is that of the example as it is now: null once it is deleted or expired, and
    for callers that may not read examples (scope adapters:manage).
    """

    holdout_rows: list[dict[str, Any]]


class VersionList(Answer):
    """An adapter's versions, newest first."""

    versions: list[Version]
    next: str | None = NEXT
