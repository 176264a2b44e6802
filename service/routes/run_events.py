"""GET /v1/runs/{id}/events: watching a run as server-sent events."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Path, Response

from api_schemas.base import LARGEST_ID
from api_schemas.runs import Run as RunAnswer
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, TheSender, needs
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.routes.lookups import run_answer_or_404
from service.routes.responses import problems
from service.runs.event_stream import KEEP_ALIVE, MEDIA_TYPE, EventStream, event
from service.runs.run_feed import END, TooManyStreamsError, Watch
from storage.tables import UNFINISHED

KEEP_ALIVE_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_A_BATCH = 100
_RETRY_SECONDS = 10
_RETRY_HINT = b"retry: 2000\n\n"

router = APIRouter(prefix="/v1/runs", route_class=StrictRoute, tags=["runs"])

_EVENT = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`snapshot` (the run), then `status`, `started`, `phase`, `evaluating`, "
        "`step`, `checkpoint`, `forgot` and `version` with the fields of the run that changed, "
        "and at last `end` (the run).",
        "content": {MEDIA_TYPE: {"schema": _EVENT}},
    },
    204: {"description": "The events have been read to their end: don't ask again."},
}


@router.get(
    "/{run_id}/events",
    responses=problems(404, 429) | _STREAM,
    response_class=Response,
    dependencies=[needs("status:read")],
)
async def watch_run(
    run_id: Annotated[int, Path(ge=1, le=LARGEST_ID)],
    context: TheContext,
    caller: TheCaller,
    sender: TheSender,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            max_length=100,
            description="The id of the last event read: those missed since follow.",
        ),
    ] = None,
) -> Response:
    """Watch the run until it ends; the stream of an unfinished run stays open.

    It begins with a `snapshot`, unless `Last-Event-ID` names an event from which on none is lost.
    A comment comes every 15 seconds.
    """
    run = await run_sync(_find, context, caller, run_id)
    if last_event_id == _end_id(run_id) and run.status not in UNFINISHED:
        return Response(status_code=204)
    try:
        watch = context.feed.watch(run_id, sender.id)
    except TooManyStreamsError as error:
        raise Refusal(429, str(error), headers={"Retry-After": str(_RETRY_SECONDS)}) from None
    stream = _RunStream(context, sender, caller, watch)
    return EventStream(stream.frames(last_event_id), watch.close)


@dataclass
class _RunStream:
    context: Context
    sender: Caller
    caller: Caller
    watch: Watch

    async def frames(self, last_event_id: str | None) -> AsyncIterator[bytes]:
        yield _RETRY_HINT
        feed = self.context.feed
        number = feed.number(last_event_id or "")
        said_at, looks = time.monotonic(), feed.looks
        while not feed.closing and self._may_read():
            if looks != feed.looks:
                looks = feed.looks
                if await self._read() is None:
                    return
            events = None if number is None else feed.after(self.watch, number, _A_BATCH)
            if number is None or events is None:
                number = feed.snapshot_number(self.watch)
                run = await self._read()
                if run is None:
                    return
                yield event("snapshot", run.model_dump_json(), feed.event_id(number))
                if run.status not in UNFINISHED:
                    yield self._end(run)
                    return
                continue
            for one in events:
                if one.name == END:
                    if (run := await self._read()) is not None:
                        yield self._end(run)
                    return
                yield event(one.name, one.data, feed.event_id(one.number))
                number = one.number
            if events:
                said_at = time.monotonic()
                continue
            if time.monotonic() - said_at >= KEEP_ALIVE_SECONDS:
                yield KEEP_ALIVE
                said_at = time.monotonic()
                if (run := await self._read()) is None or run.status not in UNFINISHED:
                    number = None  # whatever ended it, a snapshot tells
                    continue
            await self.watch.wait(_LOOK_SECONDS)

    def _may_read(self) -> bool:
        return self.context.authenticator.still_valid(self.sender)

    async def _read(self) -> RunAnswer | None:
        try:
            return await run_sync(_find, self.context, self.caller, self.watch.run_id)
        except Refusal:
            return None

    def _end(self, run: RunAnswer) -> bytes:
        return event(END, run.model_dump_json(), _end_id(run.id))


def _end_id(run_id: int) -> str:
    """The id of a run's last event is the same for every daemon: nothing comes after it."""
    return f"{END}-{run_id}"


def _find(context: Context, caller: Caller, run_id: int) -> RunAnswer:
    with context.database.read() as session:
        return run_answer_or_404(session, caller, run_id)
