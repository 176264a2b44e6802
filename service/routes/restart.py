"""POST /v1/runs/{id}/restart: a run again from the start, without what was deleted meanwhile."""

import asyncio
import time

from anyio.to_thread import run_sync
from fastapi import APIRouter, Response

from api_schemas.runs import Run as RunAnswer
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, needs
from service.door.idempotency import Idempotency, TheIdempotency
from service.door.problems import Refusal, not_now
from service.door.strict_route import StrictRoute
from service.routes.lookups import run_or_404
from service.routes.responses import problems
from service.routes.runs import RunId
from service.runs import run_log
from service.runs.checkpoints import remove_checkpoints
from service.runs.steering import SteeringError, steer
from service.runs.trigger import start_over
from service.views import run_answer, timestamp
from storage import adapters
from storage.clock import now_ms
from storage.tables import UNFINISHED

STOP_SECONDS = 2.0
"""What a worker gets for ending by itself; its checkpoints are of no more use."""

_GONE_SECONDS = 10.0
_LOOK_SECONDS = 0.05

router = APIRouter(prefix="/v1/runs", route_class=StrictRoute, tags=["runs"])


@router.post(
    "/{run_id}/restart",
    status_code=202,
    response_model=RunAnswer,
    responses=problems(404, 409),
    dependencies=[needs("train")],
)
async def restart_run(
    run_id: RunId,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
) -> RunAnswer | Response:
    """Cancel the run if it is unfinished, and queue a new one, which is the answer.

    The new run has the same `training` and begins at zero with the examples that are kept now. A
    run that is being trained is stopped first, in a few seconds; if it completes before that, its
    version stays, and the new run is queued all the same.
    """
    again = await run_sync(_cancel, context, caller, idempotency, run_id)
    if again is not None:
        return again
    deadline = time.monotonic() + _GONE_SECONDS
    while context.supervisor.training == run_id:
        if time.monotonic() > deadline:
            raise not_now(
                "the run is being cancelled, but its worker hasn't ended yet; restart it again", 5
            )
        await asyncio.sleep(_LOOK_SECONDS)
    return await run_sync(_start_over, context, caller, idempotency, response, run_id)


def _cancel(
    context: Context, caller: Caller, idempotency: Idempotency, run_id: int
) -> Response | None:
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        run = run_or_404(session, caller, run_id)
        if run.status != "running":
            return None  # it is cancelled in the transaction that queues the new one
        try:
            steered = steer(session, run, "cancel", timestamp(now_ms()))
        except SteeringError as error:
            raise Refusal(409, str(error)) from None
        if steered.changed:
            run_log.note_steered(session, run)
    context.supervisor.stop_run(run_id, STOP_SECONDS)
    if steered.changed:
        run_log.tell(context.feed, run)
    return None


def _start_over(
    context: Context,
    caller: Caller,
    idempotency: Idempotency,
    response: Response,
    run_id: int,
) -> RunAnswer | Response:
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        old = run_or_404(session, caller, run_id)
        adapter = adapters.by_id(session, old.adapter_id)
        assert adapter is not None  # a foreign key
        unfinished = old.status in UNFINISHED
        new = start_over(context, session, caller, adapter, old, timestamp(now_ms()))
        answer = run_answer(new, adapter.name, None)
        location = f"/v1/runs/{new.id}"
        idempotency.remember(session, 202, answer, adapter_id=adapter.id, location=location)
    remove_checkpoints(context.home, old.id)
    if unfinished:
        run_log.tell(context.feed, old)
    run_log.tell(context.feed, new)
    context.conductor.nudge()
    response.headers["Location"] = location
    return answer
