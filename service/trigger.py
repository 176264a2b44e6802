"""Putting a run into the queue: a new one, or the interrupted one again."""

from sqlmodel import Session

from api_schemas.runs import RunRequest
from api_schemas.training import TrainingOptions
from service.auth import Caller
from service.context import Context
from service.problems import Refusal
from service.run_spec import write_spec
from service.training_status import base_model_problem
from storage import examples, runs, versions
from storage.tables import Adapter, Run


def trigger(
    context: Context, session: Session, caller: Caller, adapter: Adapter, request: RunRequest
) -> Run:
    """Queue a run of the adapter in the writer's ``session``.

    Raises:
        Refusal: 409 if a run is under way, the base model is gone or another one, or there is
            nothing to train on.
    """
    problem = base_model_problem(context.models, adapter)
    if problem is not None:
        raise Refusal(409, problem)
    run = runs.unfinished(session, adapter.id)
    if run is None:
        return _new_run(context, session, caller, adapter, request)
    if run.status != "interrupted":
        raise Refusal(
            409, f"run {run.id} of this adapter is {run.status} already; wait for its end"
        )
    if request.training is not None:
        raise Refusal(
            409,
            f"run {run.id} is to be gone on with, and its options are fixed; trigger it without "
            "'training', and change them in the run after it",
        )
    runs.requeue(session, run)
    return run


def _new_run(
    context: Context, session: Session, caller: Caller, adapter: Adapter, request: RunRequest
) -> Run:
    train = examples.ids(session, adapter.id, "train")
    if not train:
        raise Refusal(409, "the adapter has no training examples; post some first")
    changed = {} if request.training is None else request.training.model_dump(exclude_unset=True)
    run = runs.enqueue(session, adapter.id)
    write_spec(
        context.home,
        context.settings,
        run,
        adapter,
        caller.name,
        TrainingOptions.model_validate(adapter.training | changed),
        train,
        examples.ids(session, adapter.id, "holdout"),
        versions.active(session, adapter.id),
    )
    return run
