"""Predictions: what an adapter says of an app's texts."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from api_schemas.base import LARGEST_ID, Answer, InputText, Request

MOST_INPUTS = 100
"""Inputs in one request."""

MOST_NEW_TOKENS = 4096
DEFAULT_NEW_TOKENS = 256
MOST_STOPS = 4
MOST_TEMPERATURE = 2.0

Temperature = Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)]
TopP = Annotated[float, Field(gt=0, le=1)]
NewTokens = Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)]
Seed = Annotated[int, Field(ge=-(2**63), le=LARGEST_ID)]
Stop = Annotated[str, Field(min_length=1, max_length=200)]

TEXT_OPTIONS = frozenset({"max_tokens", "temperature", "top_p", "stop", "seed"})
"""The fields that only an adapter without labels takes."""


class PredictRequest(Request):
    """One ``input``, or many ``inputs``; each is answered as if it were alone."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": "Lunch on Friday?"}]})

    input: InputText | None = None
    inputs: Annotated[list[InputText], Field(min_length=1, max_length=MOST_INPUTS)] | None = None
    version: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = Field(
        default=None, description="Which version answers; without it the active one does."
    )
    prior: bool = Field(
        default=False,
        description="Correct the probabilities by how often, and how lately, the adapter's own "
        "examples have each label.",
    )
    max_tokens: NewTokens | None = Field(
        default=None,
        description="Of each answer, for an adapter without labels, as are the fields below; "
        f"{DEFAULT_NEW_TOKENS} by default.",
    )
    temperature: Temperature | None = Field(
        default=None, description="0, the default: always the likeliest token."
    )
    top_p: TopP | None = None
    stop: Annotated[list[Stop], Field(min_length=1, max_length=MOST_STOPS)] | None = Field(
        default=None, description="Texts before which an answer ends."
    )
    seed: Seed | None = Field(
        default=None, description="The same seed draws the same answer; 0 by default."
    )

    @model_validator(mode="after")
    def _one_or_many(self) -> Self:
        if (self.input is None) == (self.inputs is None):
            raise ValueError("must have either input or inputs")
        return self

    def all_inputs(self) -> list[str]:
        """The inputs, also a single one."""
        return [self.input] if self.input is not None else list(self.inputs or ())


class LabelProbability(Answer):
    """A label and its share of the probability of all the adapter's labels."""

    label: str
    probability: float


class LabelPrediction(Answer):
    """What the adapter says of one input."""

    label: str = Field(description="The likeliest.")
    probability: float = Field(
        description="Its share of the probability of all labels. Not calibrated: 0.9 doesn't mean "
        "that nine in ten such answers are right."
    )
    labels: list[LabelProbability] = Field(description="All of them, the likeliest first.")
    cut_tokens: int = Field(description="Tokens that were cut from the input's end.")


class TokenUsage(Answer):
    """Tokens read and made."""

    prompt_tokens: int
    completion_tokens: int


class TextPrediction(Answer):
    """What an adapter without labels answers to one input."""

    text: str
    finish_reason: Literal["stop", "length"] = Field(
        description="stop: by itself, or before one of the stop texts; length: max_tokens are made."
    )
    usage: TokenUsage


class Predictions(Answer):
    """The answers, in the order of the inputs: nothing of them is kept."""

    version: int | None = Field(description="Which version answered; null: the bare base model.")
    engine: str | None = Field(description="What computed the frozen products.")
    predictions: Sequence[LabelPrediction | TextPrediction]
