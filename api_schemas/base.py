"""What all requests have in common, and the kinds of text and number they are made of."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LARGEST_ID = 2**63 - 1

_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"


class Request(BaseModel):
    """A request body: exact types, no unknown fields, no NaN, nothing of it in error texts."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


class Answer(BaseModel):
    """A response body."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


def without_nul(text: str) -> str:
    """The text, if it has no NUL character: C's texts end at one."""
    if "\0" in text:
        raise ValueError("must not contain NUL characters")
    return text


def _readable(text: str) -> str:
    if not without_nul(text).strip():
        raise ValueError("must not be blank")
    return text


def _trimmed(text: str) -> str:
    if text != text.strip():
        raise ValueError("must not begin or end with white space")
    return text


def _plain(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            "must be 1 to 64 small letters, digits, dots, underscores and hyphens, the first a "
            "letter or a digit"
        )
    return name


Name = Annotated[str, Field(json_schema_extra={"pattern": f"^{_NAME}$"}), AfterValidator(_plain)]
"""A name that is also a folder's name and part of a URL."""

InputText = Annotated[str, Field(min_length=1, max_length=100_000), AfterValidator(_readable)]
AnswerText = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_readable)]
ExternalId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_readable)]
Label = Annotated[
    str, Field(min_length=1, max_length=200), AfterValidator(_readable), AfterValidator(_trimmed)
]

Timestamp = Annotated[str, Field(examples=["2026-11-29T18:30:00.000Z"])]
"""ISO 8601 in UTC with milliseconds."""

NEXT: Any = Field(description="The `cursor` of the page after this one; null at the end.")
"""The field ``next`` of a list."""
