"""What answers a question: one JSON object a line, checked before anything acts on it."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from service.door import strict_json


class EventError(ValueError):
    """A line isn't an event of a prediction; the message says why without quoting it."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


Id = Annotated[int, Field(ge=0, le=2**53)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Probability = Annotated[float, Field(ge=0, le=1.000001)]


class Ready(_Event):
    """The child has the lock, and listens."""

    event: Literal["ready"]


class LabelsOfInput(_Event):
    """The labels' probabilities after one input."""

    label: str
    probabilities: dict[str, Probability]
    cut_tokens: Count = 0


class Usage(_Event):
    """Tokens of a text that was made."""

    prompt_tokens: Count
    completion_tokens: Count


class Answer(_Event):
    """What was asked for: ``predictions`` of labels, or a ``text`` with all that belongs to it."""

    event: Literal["answer"]
    id: Id
    predictions: list[LabelsOfInput] | None = None
    text: str | None = None
    finish_reason: Literal["stop", "length"] | None = None
    usage: Usage | None = None
    engine: str | None = None


class Token(_Event):
    """A piece of a text that is being made: whole code points, no part of a stop string."""

    event: Literal["token"]
    id: Id
    text: str


class Answering(_Event):
    """A sign of life while an answer takes long."""

    event: Literal["answering"]
    id: Id


class Cancelled(_Event):
    """The question was given up, as told."""

    event: Literal["cancelled"]
    id: Id


class Refused(_Event):
    """The question can't be answered; ``field`` is where that lies, like ``inputs.3``."""

    event: Literal["refused"]
    id: Id
    status: int
    error: str
    field: str | None = None


class Failed(_Event):
    """The child ends, for its own reason."""

    event: Literal["failed"]
    error: str


Event = Ready | Answer | Token | Answering | Cancelled | Refused | Failed

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


_OF_QUESTION = re.compile(rb'{"event": ?"(answer|token|answering|cancelled|refused)"')


def is_of_question(line: bytes) -> bool:
    """Whether a line of the training worker's is about a question, and not about its run."""
    return _OF_QUESTION.match(line) is not None


def parse(line: bytes) -> Event:
    """The event on a line.

    Raises:
        EventError: it isn't one that this daemon knows.
    """
    try:
        return _EVENT.validate_python(strict_json.loads(line))
    except strict_json.JsonError as error:
        raise EventError("it isn't strict JSON") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        places = (str(one) for one in first["loc"] if isinstance(one, int) or one in _FIELDS)
        raise EventError(f"{'.'.join(places)}: {first['type']}") from None


_FIELDS = frozenset(
    name for model in (Answer, LabelsOfInput, Refused, Token) for name in model.model_fields
)
"""What may be named in a log; the keys of ``probabilities`` are a person's labels."""
