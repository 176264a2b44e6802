"""Errors as RFC 9457 problem details."""

from pydantic import BaseModel, ConfigDict, Field

MEDIA_TYPE = "application/problem+json"


class FieldError(BaseModel):
    """What is wrong with one field of the request."""

    model_config = ConfigDict(frozen=True)

    field: str = Field(examples=["body.examples[3].label"])
    message: str = Field(examples=["must not be blank"])
    line: int | None = Field(
        default=None, ge=1, description="Of a body of NDJSON: the line, counted from 1."
    )


class Problem(BaseModel):
    """The body of every error."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(default="about:blank", description="RFC 9457: the status says it all.")
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="One sentence: what was expected, what was found, what to do.")
    errors: list[FieldError] = Field(
        default_factory=list, description="The fields at fault, where there are any."
    )
