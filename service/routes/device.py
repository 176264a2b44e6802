"""GET /v1/device: room, memory, the worker, the wake lock, the engine, the sensors."""

from typing import Any, Literal

from fastapi import APIRouter
from sqlmodel import Session

from api_schemas.device import Battery, Device, Reading, WakeLock, Worker
from api_schemas.engine import Engine
from api_schemas.scopes import ADMIN
from service import device
from service.boot_clock import boot_seconds
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, needs
from service.door.strict_route import StrictRoute
from service.engine_answer import engine_answer
from service.engine_files import EngineFiles
from service.gates.gatekeeper import gate_answers
from service.routes.responses import problems
from service.sensors import readings
from storage import runs

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["device"])


@router.get("/device", responses=problems(404), dependencies=[needs("status:read")])
def get_device(context: TheContext, caller: TheCaller) -> Device:
    """What there is room for, what trains, the caller's latest engine, battery and temperatures.

    Battery and temperatures are at most a minute old, but for a battery that has been silent. The
    gates' verdicts are those of the last look; if that was longer ago, this request causes another
    one, which the next request shows.
    """
    with context.database.read() as session:
        worker = _worker(session, context, caller)
        engine = _engine(session, context, caller)
    admin = caller.may(ADMIN)
    lock = context.phone.wake_lock
    found = context.sensors.read_unless_busy()
    return Device(
        storage=device.storage(context.home.path),
        memory=device.memory(),
        training_memory_bytes=context.settings.memory_bytes,
        database_bytes=device.database_bytes(context.home.database) if admin else None,
        worker=worker,
        wake_lock=WakeLock(state=lock.state, why=lock.why),
        engine=engine,
        battery=Battery(
            level=_shown(found.level, "%"),
            plugged=_shown(found.plugged),
            full=_shown(found.full),
            temperature=_shown(found.battery_temperature, "°C"),
        ),
        skin_temperature=_shown(found.skin_temperature, "°C"),
        gates=gate_answers(context.conductor.verdicts()),
    )


def _worker(session: Session, context: Context, caller: Caller) -> Worker:
    training = context.supervisor.training
    if training is not None:
        own = runs.find(session, caller.id, training) is not None
        return Worker(state="training", run=training if own else None, because=None)
    waiting = context.supervisor.waiting_because
    return Worker(state="idle" if waiting is None else "waiting", run=None, because=waiting)


def _engine(session: Session, context: Context, caller: Caller) -> Engine:
    admin = caller.may(ADMIN)
    files = EngineFiles(context.home.engine)

    def may_see(run_id: int) -> bool:
        return admin or runs.find(session, caller.id, run_id) is not None

    own = runs.latest_with_engine(session, caller.id)
    return engine_answer(
        context.settings,
        latest=runs.latest_with_engine(session, None) if admin else own,
        own=own,
        verdict=files.verdict(),
        demotions=files.demotions(),
        may_see=may_see,
    )


def _shown(reading: readings.Reading[Any], unit: Literal["%", "°C"] | None = None) -> Reading:
    age = reading.age(boot_seconds())
    return Reading(
        value=reading.value,
        unit=unit,
        source=reading.source,
        age_seconds=None if age is None else round(age, 1),
        why=reading.why,
    )
