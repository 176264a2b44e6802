"""/v1/schedule: the windows of local time in which training may proceed."""

from datetime import tzinfo
from typing import Any

from fastapi import APIRouter, Response
from sqlmodel import Session

from api_schemas.schedule import NewSchedule, NextOpening, Schedule, Window
from service.context import TheContext, needs
from service.door.etags import IfMatch, etag, require_match
from service.door.strict_route import StrictRoute
from service.nights.local_zone import local_zone
from service.nights.moment import wall_clock
from service.nights.windows import next_opening, open_until, opening
from service.routes.pause import pause_answer
from service.routes.responses import problems
from service.views import instant, timestamp
from storage import schedule
from storage.ledgers import ScheduleRow

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
    """The windows; every night from 23:00 to 07:00 until others are put. And what they say now."""
    zone = local_zone()
    with context.database.read() as session:
        return _answer(session, zone, response)


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
    zone = local_zone()  # before the transaction: it may take two seconds
    with context.database.write() as session:
        require_match(if_match, _revision(schedule.get(session)))
        schedule.put(session, windows)
        answer = _answer(session, zone, response)
    context.conductor.nudge()
    return answer


def _revision(row: ScheduleRow | None) -> int:
    return 0 if row is None else row.revision


def _answer(session: Session, zone: tzinfo, response: Response) -> Schedule:
    row = schedule.get(session)
    response.headers["ETag"] = etag(_revision(row))
    windows = [Window.model_validate(window) for window in schedule.windows_of(row)]
    now = wall_clock()
    is_open = opening(windows, now, zone) is not None
    until = open_until(windows, now, zone)
    following = None if is_open and until is None else next_opening(windows, until or now, zone)
    return Schedule(
        windows=windows,
        in_force=True,
        zone=str(zone),
        open=is_open,
        open_until=None if until is None else instant(until),
        next=None
        if following is None
        else NextOpening.model_validate(
            {
                "from": instant(following.begins),
                "to": instant(open_until(windows, following.begins, zone) or following.ends),
            }
        ),
        pause=pause_answer(session),
        changed_at=None if row is None else timestamp(row.changed_at),
    )
