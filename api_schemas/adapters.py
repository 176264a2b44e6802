"""Adapters: creating one, changing its settings, and asking how it is."""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from api_schemas.base import NEXT, Answer, Label, Name, Request, Timestamp
from api_schemas.nights import NightOptions, Why
from api_schemas.runs import Run
from api_schemas.training import TrainingOptions
from api_schemas.versions import Version

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_MAX_TOKENS = 1024
DEFAULT_KEEP_VERSIONS = 5
"""Enough to go back by some nights; of SmolLM2-135M at rank 8 they take 50 MB."""

Target = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS: tuple[Target, ...] = get_args(Target)


def _distinct_labels(labels: list[str]) -> list[str]:
    for position, label in enumerate(labels):
        first = labels.index(label)
        if first != position:
            raise ValueError(f"labels {first} and {position} are the same; name each label once")
    return labels


def _canonical_targets(targets: list[Target]) -> list[Target]:
    if len(set(targets)) != len(targets):
        raise ValueError("a target occurs twice; name each one once")
    return sorted(targets, key=TARGETS.index)


def _is_fixed(value: Any) -> Any:
    raise ValueError(
        "is fixed when an adapter is created, or its runs could not be resumed nor its versions "
        "compared; create another adapter"
    )


_NOT_GIVEN: Any = None  # never read: `model_fields_set` tells what was given


def _no_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


Labels = Annotated[
    list[Label], Field(min_length=2, max_length=200), AfterValidator(_distinct_labels)
]
Fixed = Annotated[SkipJsonSchema[Any], BeforeValidator(_is_fixed)]
"""A field that exists and that no change may name."""


class Retention(Request):
    """How long and how many examples are kept, and how many versions; the others go by themselves.

    Of an example that goes the text is erased.
    """

    keep_days: int | None = Field(
        default=None, ge=1, le=3650, description="Days since an example came; null: no bound."
    )
    max_examples: int | None = Field(
        default=None, ge=1, le=1_000_000, description="The newest are kept; null: no bound."
    )
    keep_versions: int | None = Field(
        default=DEFAULT_KEEP_VERSIONS,
        ge=1,
        le=1000,
        description="The newest versions are kept, and whatever their age the active one and those "
        "that an unfinished run has to do with; null: no bound.",
    )


class NewAdapter(Request):
    """An adapter to be created. Everything but the name has a default."""

    name: Name
    base_model: Name = DEFAULT_MODEL
    labels: Labels | None = Field(
        default=None, description="The only labels allowed; null: any text is an answer."
    )
    rank: int = Field(default=8, ge=1, le=64)
    alpha: float = Field(default=16.0, gt=0, le=10_000)
    targets: Annotated[
        list[Target],
        Field(min_length=1, max_length=len(TARGETS)),
        AfterValidator(_canonical_targets),
    ] = Field(default=list(TARGETS), description="The linears of each layer that get a LoRA.")
    use_rslora: bool = False
    top_layers: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="How many layers get a LoRA, counted from the top; null: all. What the layers "
        "below make of each example is then computed once and kept on the disk with the example, "
        "which makes later steps and later nights faster.",
    )
    method: Literal["first_order"] = "first_order"
    max_tokens: int | None = Field(
        default=None,
        ge=16,
        le=2**20,
        description=f"Of prompt and answer; null: {DEFAULT_MAX_TOKENS}, or the model's context "
        "where that is smaller.",
    )
    too_long: Literal["refuse", "cut"] = Field(
        default="refuse", description="What happens to a longer example at the door."
    )
    training: TrainingOptions = TrainingOptions()
    night: NightOptions = NightOptions()
    retention: Retention = Retention()


class AdapterChange(Request):
    """A change of an adapter's settings. Only the fields given change."""

    labels: Labels | None = Field(
        default=_NOT_GIVEN,
        description="The only labels allowed from now on; null: any text is an answer.",
        json_schema_extra=_no_default,
    )
    max_tokens: int = Field(
        default=_NOT_GIVEN,
        ge=16,
        le=2**20,
        description="Of prompt and answer.",
        json_schema_extra=_no_default,
    )
    too_long: Literal["refuse", "cut"] = Field(
        default=_NOT_GIVEN,
        description="What happens to a longer example at the door.",
        json_schema_extra=_no_default,
    )
    training: TrainingOptions = Field(
        default=_NOT_GIVEN,
        description="Of it, too, only the fields given change.",
        json_schema_extra=_no_default,
    )
    night: NightOptions = Field(
        default=_NOT_GIVEN,
        description="Of it, too, only the fields given change.",
        json_schema_extra=_no_default,
    )
    retention: Retention = Field(
        default=_NOT_GIVEN,
        description="Of it, too, only the fields given change. A lower bound holds at once.",
        json_schema_extra=_no_default,
    )
    name: Fixed = None
    base_model: Fixed = None
    method: Fixed = None
    rank: Fixed = None
    alpha: Fixed = None
    targets: Fixed = None
    use_rslora: Fixed = None
    top_layers: Fixed = None


class ExampleCounts(Answer):
    """How many examples an adapter has; pending and used are the two parts of train."""

    train: int
    holdout: int
    pending: int = Field(description="Training examples that no finished version has seen yet.")
    used: int
    expired: int = Field(description="Shells of examples whose text retention has erased.")
    bytes: int = Field(description="Size of the text of train and holdout.")


class Adapter(Answer):
    """An adapter and how it is."""

    name: str
    base_model: str
    base_hash: str
    method: str
    rank: int
    alpha: float
    targets: list[str]
    use_rslora: bool
    top_layers: int | None
    labels: list[str] | None
    max_tokens: int
    too_long: Literal["refuse", "cut"]
    training: TrainingOptions
    night: NightOptions
    retention: Retention
    revision: int = Field(description="Of the settings; in quotes it is their ETag.")
    examples: ExampleCounts
    current_run: Run | None = Field(description="Queued, running, paused or interrupted.")
    active_version: Version | None
    not_training_because: str | None = Field(description="In words; null while it is training.")
    why: Why
    created_at: Timestamp


class AdapterList(Answer):
    """The client's adapters by name."""

    adapters: list[Adapter]
    next: str | None = NEXT
