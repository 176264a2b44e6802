"""What every route works with."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from service.auth import Caller
from service.guard import CALLER
from service.home import Home
from service.length import LengthCheck
from service.models import ModelFolder
from service.settings import Settings
from service.supervisor import Supervisor
from storage.database import Database


@dataclass(frozen=True)
class Context:
    """The parts of a running daemon."""

    settings: Settings
    home: Home
    database: Database
    models: ModelFolder
    lengths: LengthCheck
    supervisor: Supervisor


def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


def _caller(request: Request) -> Caller:
    return cast(Caller, request.scope[CALLER])


TheContext = Annotated[Context, Depends(_context)]
TheCaller = Annotated[Caller, Depends(_caller)]
