"""/v1/adapters/{name}/runs and /v1/runs: asking for trainings, watching and steering them."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from api_schemas.base import LARGEST_ID
from api_schemas.runs import Run as RunAnswer
from api_schemas.runs import RunList, RunRequest
from service.context import Context, TheCaller, TheContext, needs
from service.door import cursors
from service.door.cursors import A_PAGE, Cursor, Limit
from service.door.idempotency import Idempotency, TheIdempotency
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.routes.lookups import adapter_or_404, run_answer_or_404, run_or_404
from service.routes.responses import problems
from service.runs import run_log
from service.runs.checkpoints import remove_checkpoints
from service.runs.steering import SteeringError, Verb, steer
from service.runs.trigger import require_base_model, trigger
from service.views import run_answer, timestamp
from storage import adapters, runs, versions
from storage.clock import now_ms

_CURSOR = "runs"

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["runs"])

RunId = Annotated[int, Path(ge=1, le=LARGEST_ID)]

_STEERED = problems(404, 409) | {
    200: {"description": "The run is as asked."},
    202: {"model": RunAnswer, "description": "It will be once its worker has stopped: `wanted`."},
}


@router.post(
    "/adapters/{name}/runs",
    status_code=202,
    response_model=RunAnswer,
    responses=problems(404, 409, body=True),
    dependencies=[needs("train")],
)
def start_run(
    name: str,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
    body: Annotated[RunRequest | None, Body()] = None,
) -> RunAnswer | Response:
    """Train the adapter on all its training examples; an interrupted run goes on instead."""
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        run = trigger(context, session, caller, adapter, body or RunRequest())
        answer = run_answer(run, adapter.name, None)
        location = f"/v1/runs/{run.id}"
        idempotency.remember(session, 202, answer, adapter_id=adapter.id, location=location)
    run_log.tell(context.feed, run)
    context.conductor.nudge()
    response.headers["Location"] = location
    return answer


@router.get("/adapters/{name}/runs", responses=problems(404), dependencies=[needs("status:read")])
def list_runs(
    name: str,
    context: TheContext,
    caller: TheCaller,
    limit: Limit = A_PAGE,
    cursor: Cursor = None,
) -> RunList:
    """The adapter's runs, newest first."""
    before = None if cursor is None else cursors.decode(_CURSOR, cursor)
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        rows = runs.page(session, adapter.id, before=before, limit=limit + 1)
        numbers = versions.numbers_by_run(session, adapter.id)
    shown, following = cursors.cut(_CURSOR, rows, limit, lambda row: row.id)
    return RunList(
        runs=[run_answer(row, adapter.name, numbers.get(row.id)) for row in shown],
        next=following,
    )


@router.get("/runs/{run_id}", responses=problems(404), dependencies=[needs("status:read")])
def get_run(run_id: RunId, context: TheContext, caller: TheCaller) -> RunAnswer:
    """One run and how far it is."""
    with context.database.read() as session:
        return run_answer_or_404(session, caller, run_id)


@router.post(
    "/runs/{run_id}/pause",
    response_model=RunAnswer,
    responses=_STEERED,
    dependencies=[needs("train")],
)
def pause_run(
    run_id: RunId,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
) -> RunAnswer | Response:
    """Stop the run with a checkpoint, until it is resumed. A paused run stays as it is."""
    return _steer(context, caller, idempotency, response, run_id, "pause")


@router.post(
    "/runs/{run_id}/resume",
    response_model=RunAnswer,
    responses=_STEERED,
    dependencies=[needs("train")],
)
def resume_run(
    run_id: RunId,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
) -> RunAnswer | Response:
    """Queue a paused or interrupted run: it goes on from its last checkpoint."""
    return _steer(context, caller, idempotency, response, run_id, "resume")


@router.post(
    "/runs/{run_id}/cancel",
    response_model=RunAnswer,
    responses=_STEERED,
    dependencies=[needs("train")],
)
def cancel_run(
    run_id: RunId,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
) -> RunAnswer | Response:
    """End the run for good and remove its checkpoints; if it completes first, it is completed."""
    return _steer(context, caller, idempotency, response, run_id, "cancel")


def _steer(
    context: Context,
    caller: TheCaller,
    idempotency: Idempotency,
    response: Response,
    run_id: int,
    verb: Verb,
) -> RunAnswer | Response:
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        run = run_or_404(session, caller, run_id)
        adapter = adapters.by_id(session, run.adapter_id)
        assert adapter is not None  # a foreign key
        try:
            steered = steer(session, run, verb, timestamp(now_ms()))
        except SteeringError as error:
            raise Refusal(409, str(error)) from None
        if run.status == "queued" and steered.changed:
            require_base_model(context, adapter)  # a run that can't be trained would fail for good
        if steered.changed:
            run_log.note_steered(session, run)
        answer = run_answer(run, adapter.name, None)
        status = 200 if run.wanted is None else 202
        idempotency.remember(session, status, answer, adapter_id=adapter.id)
    if steered.stops_worker:
        context.supervisor.stop_run(run.id)
    if run.status == "cancelled":
        remove_checkpoints(context.home, run.id)
    if steered.changed:
        run_log.tell(context.feed, run)
        context.conductor.nudge()
    response.status_code = status
    return answer
