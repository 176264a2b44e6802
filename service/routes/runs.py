"""/v1/adapters/{name}/runs and /v1/runs: asking for trainings, and watching them."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from api_schemas.base import LARGEST_ID
from api_schemas.runs import Run as RunAnswer
from api_schemas.runs import RunList, RunRequest
from service.context import TheCaller, TheContext, needs
from service.routes.lookups import adapter_or_404, run_or_404
from service.routes.responses import problems
from service.strict_route import StrictRoute
from service.trigger import trigger
from service.views import run_answer
from storage import adapters, runs, versions

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["runs"])


@router.post(
    "/adapters/{name}/runs",
    status_code=202,
    responses=problems(404, 409, body=True),
    dependencies=[needs("train")],
)
def start_run(
    name: str,
    context: TheContext,
    caller: TheCaller,
    response: Response,
    body: Annotated[RunRequest | None, Body()] = None,
) -> RunAnswer:
    """Train the adapter on all its training examples; an interrupted run goes on instead."""
    with context.database.write() as session:
        adapter = adapter_or_404(session, caller, name)
        run = trigger(context, session, caller, adapter, body or RunRequest())
    context.supervisor.wake()
    response.headers["Location"] = f"/v1/runs/{run.id}"
    return run_answer(run, adapter.name, None)


@router.get("/adapters/{name}/runs", responses=problems(404), dependencies=[needs("status:read")])
def list_runs(name: str, context: TheContext, caller: TheCaller) -> RunList:
    """The adapter's runs, newest first."""
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        numbers = versions.numbers_by_run(session, adapter.id)
        rows = runs.of_adapter(session, adapter.id)
    return RunList(runs=[run_answer(row, adapter.name, numbers.get(row.id)) for row in rows])


@router.get("/runs/{run_id}", responses=problems(404), dependencies=[needs("status:read")])
def get_run(
    run_id: Annotated[int, Path(ge=1, le=LARGEST_ID)], context: TheContext, caller: TheCaller
) -> RunAnswer:
    """One run and how far it is."""
    with context.database.read() as session:
        run = run_or_404(session, caller, run_id)
        adapter = adapters.by_id(session, run.adapter_id)
        version = versions.of_run(session, run.id)
    assert adapter is not None  # a foreign key
    return run_answer(run, adapter.name, None if version is None else version.number)
