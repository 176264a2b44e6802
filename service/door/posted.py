"""What a request hands in as examples: one, many under ``examples``, or one a line (NDJSON)."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from pydantic import TypeAdapter, ValidationError

from api_schemas.examples import MOST_LINES, ExamplesBody, PostedExample, PostedExamples
from api_schemas.problems import FieldError
from service.context import sender_of
from service.door import ndjson, strict_json
from service.door.idempotency import TheIdempotencyKey, body_parts
from service.door.problems import MOST_FIELD_ERRORS, Refusal, field_name, invalid, message_of
from service.door.strict_json import MOST_VALUES
from service.door.strict_route import JSON, require_content, value_of
from storage.examples import NewExample

_BODY: TypeAdapter[PostedExample | PostedExamples] = TypeAdapter(ExamplesBody)


@dataclass
class Posted:
    """Examples, and where in the body each of them stood.

    ``faults`` lists the lines of NDJSON that are no examples: the request is to be refused, but
    first the others are to be looked at.
    """

    shape: Literal["one", "many", "lines"]
    examples: list[NewExample] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    faults: list[FieldError] = field(default_factory=list)

    def fault(self, index: int, name: str, message: str) -> FieldError:
        """What is wrong with the field ``name`` of the ``index``-th example."""
        if self.shape == "many":
            return FieldError(field=f"body.examples[{index}].{name}", message=message)
        line = self.lines[index] if self.shape == "lines" else None
        return FieldError(field=f"body.{name}", message=message, line=line)

    def refuse(self, faults: Iterable[FieldError]) -> None:
        """Refuse (422) the request if it has any faults, these or those of its lines."""
        found = sorted([*self.faults, *faults], key=lambda one: one.line or 0)
        if found:
            raise Refusal(422, "nothing was kept: some examples can't be accepted", found)


async def _read(request: Request, idempotency: TheIdempotencyKey) -> Posted:
    media_type = require_content(request, JSON, ndjson.MEDIA_TYPE)
    parts = body_parts(request, idempotency)
    if media_type == ndjson.MEDIA_TYPE:
        posted = await _of_lines(parts)
    else:
        posted = _of_document(b"".join([part async for part in parts]))
    await sender_of(request)  # once more: the body may have taken long to arrive
    return posted


ThePosted = Annotated[Posted, Depends(_read)]
"""The examples in a request's body, which is read here."""


def _of_document(body: bytes) -> Posted:
    if not body:
        raise invalid(("body", "Field required"))
    try:
        given = _BODY.validate_python(value_of(body))
    except ValidationError as error:
        raise invalid(
            *((field_name(("body", *one["loc"])), message_of(one)) for one in _faults_of(error))
        ) from None
    if isinstance(given, PostedExample):
        return Posted("one", [_new(given)])
    return Posted("many", [_new(example) for example in given.examples])


async def _of_lines(parts: AsyncIterator[bytes]) -> Posted:
    posted = Posted("lines")
    async for number, line in ndjson.lines(parts):
        if number > MOST_LINES:
            raise invalid(
                ("body", f"expected at most {MOST_LINES} lines; send them in several requests")
            )
        if len(posted.faults) >= MOST_FIELD_ERRORS:
            continue  # read to its end, so that the client is there to hear of them
        try:
            posted.examples.append(_new(PostedExample.model_validate(_value_of_line(line))))
            posted.lines.append(number)
        except ValidationError as error:
            posted.faults += [
                FieldError(
                    field=field_name(("body", *one["loc"])), message=message_of(one), line=number
                )
                for one in _faults_of(error)
            ]
        except strict_json.JsonError as error:
            posted.faults += [
                FieldError(field=field_name(("body", *place)), message=message, line=number)
                for place, message in error.places or [((), _within_line(error))]
            ]
    if not posted.examples and not posted.faults:
        raise invalid(("body", "expected an example on each line, found no line"))
    return posted


def _value_of_line(line: bytes) -> Any:
    if not line:
        raise strict_json.JsonError("the line is blank; only the end of the body may be")
    return strict_json.loads(line, most_values=MOST_VALUES)


def _within_line(error: strict_json.JsonError) -> str:
    return str(error).replace(" at line 1, column ", " at column ")  # the line is told beside it


def _faults_of(error: ValidationError) -> Any:
    return error.errors(include_url=False, include_input=False)


def _new(given: PostedExample) -> NewExample:
    return NewExample(given.input, given.label, given.split, given.external_id)
