"""What every route works with, and who may use it."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

from fastapi import Depends, Query, Request

from api_schemas.scopes import ADMIN, Scope
from service.clients.auth import Authenticator, Caller
from service.clients.pairing import PairingDesk
from service.clients.server_key import ServerKeys
from service.door.guard import CALLER
from service.door.length import LengthCheck
from service.door.penalty import Penalty
from service.door.problems import Refusal
from service.eraser import Eraser
from service.home import Home
from service.metrics.requests import RequestCounts
from service.models import ModelFolder
from service.nights.conductor import Conductor
from service.phone.phone import Phone
from service.predictions.desk import PredictionDesk
from service.runs.run_feed import RunFeed
from service.runs.supervisor import Supervisor
from service.sensors.sensors import Sensors
from service.settings import Settings
from storage.database import Database


@dataclass(frozen=True)
class Context:
    """The parts of a running daemon."""

    settings: Settings
    home: Home
    database: Database
    models: ModelFolder
    lengths: LengthCheck
    authenticator: Authenticator
    supervisor: Supervisor
    conductor: Conductor
    sensors: Sensors
    eraser: Eraser
    feed: RunFeed
    predictions: PredictionDesk
    server_keys: ServerKeys
    phone: Phone
    desk: PairingDesk = field(default_factory=PairingDesk)
    penalty: Penalty = field(default_factory=Penalty)
    requests: RequestCounts = field(default_factory=RequestCounts)


class Needs:
    """A dependency of a route: its caller must have one of these scopes."""

    def __init__(self, *any_of: Scope) -> None:
        """Ask for one of them; for none, any client will do."""
        self.any_of = any_of

    async def __call__(self, request: Request) -> None:
        """Refuse with 403 who has none of them. Says nothing about what exists."""
        caller = await sender_of(request)
        if self.any_of and not caller.may(*self.any_of):
            raise Refusal(
                403,
                f"expected a token with the scope {' or '.join(self.any_of)}, found one with "
                f"{', '.join(sorted(caller.scopes)) or 'none'}; pair again with the scope it lacks",
            )


def needs(*any_of: Scope) -> Any:
    """For a route's ``dependencies``: its caller must have one of these scopes."""
    return Depends(Needs(*any_of))


async def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


TheContext = Annotated[Context, Depends(_context)]


async def sender_of(request: Request) -> Caller:
    """Who the guard let in, if the token still stands: the body may have taken long to arrive."""
    caller = cast(Caller, request.scope[CALLER])
    if not cast(Context, request.app.state.context).authenticator.still_valid(caller):
        raise Refusal(
            401,
            "the token was revoked or replaced, or its scopes were changed, while the request "
            "arrived; send it again with the token you have now",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return caller


TheSender = Annotated[Caller, Depends(sender_of)]
"""Whose token the request carries, whomever it is about."""


async def _caller(
    request: Request,
    context: TheContext,
    client: Annotated[
        str | None,
        Query(max_length=64, description="Act on the things of this client (scope admin only)."),
    ] = None,
) -> Caller:
    caller = await sender_of(request)
    if client is None or client == caller.name:
        return caller
    if not caller.may(ADMIN):
        raise Refusal(403, "only a token with the scope admin may act on another client's things")
    other = context.authenticator.named(client)
    if other is None:
        raise Refusal(404, "there is no client of that name; GET /v1/clients lists them")
    return replace(other, scopes=caller.scopes, token=caller.token)


TheCaller = Annotated[Caller, Depends(_caller)]
