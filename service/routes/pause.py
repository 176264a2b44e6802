"""/v1/pause: no run of anybody's proceeds until its user says so."""

from fastapi import APIRouter
from sqlmodel import Session

from api_schemas.pause import NewPause, Pause
from service.context import TheContext, needs
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from service.views import timestamp
from storage import training_pause
from storage.clock import now_ms

router = APIRouter(prefix="/v1/pause", route_class=StrictRoute, tags=["device"])


@router.get("", responses=problems(), dependencies=[needs("status:read")])
def get_pause(context: TheContext) -> Pause:
    """Whether all training is paused by the user, and until when."""
    with context.database.read() as session:
        return pause_answer(session)


@router.put("", responses=problems(body=True), dependencies=[needs("admin")])
def put_pause(new: NewPause, context: TheContext) -> Pause:
    """Pause all training, of every client, or change until when it is paused.

    The run that is being trained writes a checkpoint and waits; it goes on from there.
    """
    with context.database.write() as session:
        training_pause.begin(session, new.until_ms)
        answer = pause_answer(session)
    context.conductor.nudge()
    return answer


@router.delete("", responses=problems(), dependencies=[needs("admin")])
def delete_pause(context: TheContext) -> Pause:
    """Let training go on, when windows and gates allow it. Training that isn't paused stays so."""
    with context.database.write() as session:
        training_pause.end(session)
        answer = pause_answer(session)
    context.conductor.nudge()
    return answer


def pause_answer(session: Session) -> Pause:
    """The pause as it is now."""
    row = training_pause.active(session, now_ms())
    return Pause(
        paused=row is not None,
        since=None if row is None else timestamp(row.since),
        until=None if row is None or row.until is None else timestamp(row.until),
    )
