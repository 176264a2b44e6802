"""Pairing: from a code on a screen to a token, and the daemon's proof of who it is."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from api_schemas.base import Answer, Name, Request, Timestamp
from api_schemas.clients import QuotaChange, Scopes
from api_schemas.scopes import Scope

Code = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}[ -]?[0-9]{4}$")]
"""Eight digits, in one piece or in two groups."""

Nonce = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22,86}={0,2}$")]
"""16 to 64 random bytes in base64url, with padding or without."""

KeyId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class NewPairingCode(Request):
    """Who shall be paired, and what it may do."""

    name: Name
    scopes: Scopes
    quotas: QuotaChange | None = None
    replace: bool = Field(
        default=False,
        description="Give a client that exists a new token and server key (and these scopes): "
        "its old ones stop when the code is used, its adapters and examples stay.",
    )


class PairingCode(Answer):
    """A code to type into the app."""

    code: str = Field(examples=["12345678"])
    name: str
    scopes: list[Scope]
    expires_at: Timestamp


class PairingState(Answer):
    """What became of the last code for a name."""

    state: Literal["waiting", "used", "expired", "void"] = Field(
        description="void: too many wrong codes were tried, or it was withdrawn or replaced."
    )


class PairRequest(Request):
    """The code that a person typed in."""

    code: Code = Field(examples=["1234 5678"])
    name: Name | None = Field(
        default=None, description="The name that the code must be for; left out: any."
    )


class Hello(Answer):
    """The daemon's answer to a client's question who it is."""

    proof: str = Field(
        description="HMAC-SHA256 in unpadded base64url, under the client's server key, of "
        "`lorad-hello-1`, a line feed, `127.0.0.1:PORT`, a line feed, and the nonce as it was "
        "sent. Compare it with PORT being the port you dialled."
    )
