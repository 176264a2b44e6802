"""Clients: apps with a token, what they may do, and how much."""

from typing import Annotated

from pydantic import AfterValidator, Field

from api_schemas.base import Answer, Request, Timestamp
from api_schemas.scopes import Scope

DEFAULT_EXAMPLES_PER_DAY = 10_000
DEFAULT_MOST_BYTES = 64 * 1024 * 1024
DEFAULT_MOST_PENDING = 100_000

ExamplesPerDay = Annotated[
    int | None,
    Field(ge=1, le=1_000_000_000, description="Examples sent in one day (UTC); null: no limit."),
]
MostBytes = Annotated[
    int | None,
    Field(ge=1, le=2**50, description="UTF-8 bytes of all texts kept; null: no limit."),
]
MostPending = Annotated[
    int | None,
    Field(ge=1, le=1_000_000_000, description="Examples no training has used yet; null: no limit."),
]


def _each_once(scopes: list[Scope]) -> list[Scope]:
    if len(set(scopes)) != len(scopes):
        raise ValueError("must not name a scope twice")
    return scopes


Scopes = Annotated[list[Scope], Field(min_length=1, max_length=20), AfterValidator(_each_once)]
"""What a client may do: one scope at least, none twice."""


class QuotaChange(Request):
    """The quotas to set; those left out stay as they are, or for a new client get the default."""

    examples_per_day: ExamplesPerDay = DEFAULT_EXAMPLES_PER_DAY
    most_bytes: MostBytes = DEFAULT_MOST_BYTES
    most_pending: MostPending = DEFAULT_MOST_PENDING


class ClientChange(Request):
    """What to change of a client; what is left out stays as it is."""

    scopes: Scopes | None = Field(default=None, description="Replace all of its scopes.")
    quotas: QuotaChange | None = None


class Quotas(Answer):
    """How much a client may send and keep. Null: no limit."""

    examples_per_day: int | None
    most_bytes: int | None
    most_pending: int | None


class Usage(Answer):
    """What it has used of its quotas."""

    examples_today: int = Field(description="Sent since midnight UTC.")
    bytes: int = Field(description="UTF-8 bytes of all texts kept.")
    pending: int = Field(description="Training examples that no training has used yet.")


class Client(Answer):
    """A client, without its token: that is told once, when it is paired or rotated."""

    name: str
    scopes: list[Scope]
    quotas: Quotas
    usage: Usage
    revoked: bool = Field(description="It has no token; its adapters and examples are kept.")
    created_at: Timestamp
    paired_at: Timestamp = Field(description="When it last got a token.")


class ClientPage(Answer):
    """Clients by name."""

    clients: list[Client]
    next: str | None = Field(description="The cursor of the next page; null: this was the last.")


class Credentials(Answer):
    """What a client keeps, and is told this once.

    Keep both secrets where other apps can't read them.
    """

    client: str = Field(description="Its name.")
    token: str = Field(description="For the header `Authorization: Bearer …`.")
    scopes: list[Scope]
    server_key_id: str = Field(description="For `GET /v1/hello?key=…`.")
    server_key: str = Field(
        description="32 bytes in unpadded base64url, by which the daemon proves itself."
    )
