"""Examples: what apps hand in, and what they can read back."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from api_schemas.base import NEXT, Answer, AnswerText, ExternalId, InputText, Request, Timestamp

MOST_EXAMPLES = 500
"""Examples in one request of JSON."""

MOST_LINES = 10_000
"""Lines, and so examples, in one request of NDJSON."""

Split = Literal["train", "holdout"]
ExampleStatus = Literal["pending", "used", "expired"]


class PostedExample(Request):
    """One labelled text. Without ``split`` a keyed hash of the input decides, for good."""

    input: InputText
    label: AnswerText = Field(description="One of the adapter's labels, when it declares any.")
    split: Split | None = None
    external_id: ExternalId | None = Field(
        default=None, description="The app's own id; sent again, it corrects that example."
    )


class PostedExamples(Request):
    """Several examples: all are kept, or none."""

    examples: list[PostedExample] = Field(min_length=1, max_length=MOST_EXAMPLES)


ONE = "one"
MANY = "many"


def _one_or_many(body: Any) -> str:
    given = body if isinstance(body, dict) else getattr(body, "model_fields_set", ())
    return MANY if "examples" in given else ONE


ExamplesBody = Annotated[
    Annotated[PostedExample, Tag(ONE)] | Annotated[PostedExamples, Tag(MANY)],
    Discriminator(_one_or_many),
]
"""One example, or many under ``examples``."""


class AcceptedExample(Answer):
    """An example that is on the disk."""

    id: int
    split: Split
    cut_tokens: int = Field(description="Tokens that training will cut from the input's end.")


class AcceptedExamples(Answer):
    """The accepted examples, in the order they were given."""

    examples: list[AcceptedExample]


class Example(Answer):
    """An example as it is kept. Of an expired one input and label are gone."""

    id: int
    input: str | None
    label: str | None
    split: Split
    status: ExampleStatus = Field(
        description="used: a finished version was trained on it; expired: its time or place in "
        "the adapter's retention is over, and its text is erased."
    )
    external_id: str | None
    created_at: Timestamp
    changed_at: Timestamp = Field(description="When it came, was corrected or expired.")


class ExampleList(Answer):
    """Some of an adapter's examples by ascending id; fewer than asked for where they are long."""

    examples: list[Example]
    next: str | None = NEXT
