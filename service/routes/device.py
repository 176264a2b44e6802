"""GET /v1/device: room, memory, the worker, the engine."""

from fastapi import APIRouter
from sqlmodel import Session

from api_schemas.device import Device, Engine, Reading, Worker
from api_schemas.scopes import ADMIN
from service import device
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, needs
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from storage import runs

_NO_SENSOR = Reading(value=None, why="no sensor is read by this version")

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["device"])


@router.get("/device", responses=problems(404), dependencies=[needs("status:read")])
def get_device(context: TheContext, caller: TheCaller) -> Device:
    """What there is room for, what trains, and the engine of the caller's latest run."""
    with context.database.read() as session:
        latest = runs.latest_of_client(session, caller.id)
        worker = _worker(session, context, caller)
    admin = caller.may(ADMIN)
    return Device(
        storage=device.storage(context.home.path),
        memory=device.memory(),
        database_bytes=device.database_bytes(context.home.database) if admin else None,
        worker=worker,
        engine=None
        if latest is None or latest.engine is None
        else Engine(run=latest.id, report=latest.engine),
        battery=_NO_SENSOR,
        temperature=_NO_SENSOR,
        gates=[],
    )


def _worker(session: Session, context: Context, caller: Caller) -> Worker:
    training = context.supervisor.training
    if training is not None:
        own = runs.find(session, caller.id, training) is not None
        return Worker(state="training", run=training if own else None, because=None)
    waiting = context.supervisor.waiting_because
    return Worker(state="idle" if waiting is None else "waiting", run=None, because=waiting)
