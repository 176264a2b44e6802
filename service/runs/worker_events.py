"""What the worker says: one JSON object a line, checked before anything acts on it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from service.door import strict_json


class EventError(ValueError):
    """A line of the worker isn't an event; the message says why without quoting it."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    run: int


Count = Annotated[int, Field(ge=0, le=2**53)]


class Started(_Event):
    """The worker has loaded everything and begins."""

    event: Literal["started"]
    total_steps: Annotated[int, Field(gt=0, le=2**53)]
    resumed_from: Count | None
    engine: dict[str, Any]
    exact_resume: bool
    exact_resume_reason: str | None


class Phase(_Event):
    """What the worker is doing from now on."""

    event: Literal["phase"]
    phase: Annotated[str, Field(max_length=40)]


class Evaluating(_Event):
    """How many held-out examples are measured."""

    event: Literal["evaluating"]
    done: Count
    total: Count


class Step(_Event):
    """One optimizer step is done."""

    event: Literal["step"]
    step: Count
    total: Annotated[int, Field(gt=0, le=2**53)]
    epoch: float
    loss: float
    learning_rate: float
    seconds: Annotated[float, Field(ge=0)]
    tokens: Count = 0
    label_tokens: Count = 0


class Checkpoint(_Event):
    """The state after this step is on the disk."""

    event: Literal["checkpoint"]
    step: Count


class Forgot(_Event):
    """How many of its examples, deleted or expired since it began, the run goes on without."""

    event: Literal["forgot"]
    total: Count
    step: Count


class Cut(_Event):
    """An example was cut to fit."""

    event: Literal["cut"]
    example_id: Count
    tokens: Count


class EngineReport(_Event):
    """What the engine has counted so far."""

    event: Literal["engine"]
    engine: dict[str, Any]


class VersionReady(_Event):
    """The version's folder is whole."""

    event: Literal["version"]
    path: Annotated[str, Field(max_length=300)]


class Stopped(_Event):
    """The worker stops in order, with a checkpoint."""

    event: Literal["stopped"]
    step: Count
    reason: str


class Failed(_Event):
    """The run can't go on; ``again``: nobody expected that, and another try may go better."""

    event: Literal["failed"]
    step: Count | None
    error: str
    again: bool = False


Event = (
    Started
    | Phase
    | Evaluating
    | Step
    | Checkpoint
    | Forgot
    | Cut
    | EngineReport
    | VersionReady
    | Stopped
    | Failed
)

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def parse(line: bytes) -> Event:
    """The event on a line.

    Raises:
        EventError: it isn't one that this daemon knows.
    """
    try:
        return _EVENT.validate_python(strict_json.loads(line))
    except strict_json.JsonError as error:
        place = f" ({'.'.join(map(str, error.places[0][0]))})" if error.places else ""
        raise EventError(f"{error}{place}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise EventError(f"{'.'.join(map(str, first['loc']))}: {first['type']}") from None
