"""ETag and If-Match: a change is made to the settings that its sender has seen, or not at all."""

from typing import Annotated

from fastapi import Header

from service.door.problems import Refusal

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description='The ETag that a GET answered, as `"3"`; or `*` to change whatever is there.',
    ),
]
"""The header of a route that changes settings; hand it to `require_match`."""


def etag(revision: int) -> str:
    """The entity tag of settings by how often they have changed."""
    return f'"{revision}"'


def require_match(if_match: str | None, revision: int) -> None:
    """Refuse a change unless it is meant for this ``revision`` of the settings.

    Raises:
        Refusal: 428 without the header, 412 if none of its tags is the present one.
    """
    if if_match is None:
        raise Refusal(
            428,
            "expected the header If-Match with the ETag of the settings to be changed; GET them "
            "first, or send If-Match: *",
        )
    given = [tag.strip() for tag in if_match.split(",")]
    if "*" not in given and etag(revision) not in given:
        raise Refusal(
            412,
            "the settings have changed since the ETag in If-Match was given; GET them again, and "
            "decide anew",
            headers={"ETag": etag(revision)},
        )
