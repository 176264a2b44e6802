"""/v1/schedule: the windows of local time in which training may proceed."""

from typing import Any

from fastapi import APIRouter, Response

from api_schemas.schedule import NewSchedule, Schedule, Window
from service.context import TheContext, needs
from service.door.etags import IfMatch, etag, require_match
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from service.views import timestamp
from storage import schedule
from storage.ledgers import ScheduleRow

_NOT_IN_FORCE = "this version trains only when asked: POST /v1/adapters/{name}/runs"

router = APIRouter(prefix="/v1/schedule", route_class=StrictRoute, tags=["device"])

_WITH_ETAG: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The schedule.",
        "headers": {
            "ETag": {"description": "Of the windows, for If-Match.", "schema": {"type": "string"}}
        },
    }
}


@router.get("", responses=problems() | _WITH_ETAG, dependencies=[needs("status:read")])
def get_schedule(context: TheContext, response: Response) -> Schedule:
    """The windows; every night from 23:00 to 07:00 until others are put."""
    with context.database.read() as session:
        row = schedule.get(session)
    return _answer(row, response)


@router.put(
    "",
    responses=problems(412, 428, body=True) | _WITH_ETAG,
    dependencies=[needs("admin")],
)
def put_schedule(
    new: NewSchedule, context: TheContext, response: Response, if_match: IfMatch = None
) -> Schedule:
    """Replace the windows, if they are still those of the ETag in `If-Match`."""
    windows = [window.model_dump(by_alias=True) for window in new.windows]
    with context.database.write() as session:
        require_match(if_match, _revision(schedule.get(session)))
        row = schedule.put(session, windows)
    return _answer(row, response)


def _revision(row: ScheduleRow | None) -> int:
    return 0 if row is None else row.revision


def _answer(row: ScheduleRow | None, response: Response) -> Schedule:
    response.headers["ETag"] = etag(_revision(row))
    windows = schedule.EVERY_NIGHT if row is None else row.windows
    return Schedule(
        windows=[Window.model_validate(window) for window in windows],
        in_force=False,
        why=_NOT_IN_FORCE,
        changed_at=None if row is None else timestamp(row.changed_at),
    )
