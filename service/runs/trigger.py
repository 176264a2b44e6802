"""Putting a run into the queue: a new one, or the interrupted one again."""

from pydantic import ValidationError
from sqlmodel import Session

from api_schemas.runs import RunRequest
from api_schemas.training import TrainingOptions
from service.clients.auth import Caller
from service.context import Context
from service.door.problems import Refusal
from service.runs.base_model import base_model_problem
from service.runs.new_run import new_run
from service.runs.run_log import note
from service.runs.run_spec import SpecError, read_spec
from service.runs.steering import steer
from service.versions.activation import ActivationError, check_usable
from storage import examples, runs, versions
from storage.tables import Adapter, Run, Version


def trigger(
    context: Context, session: Session, caller: Caller, adapter: Adapter, request: RunRequest
) -> Run:
    """Queue a run of the adapter in the writer's ``session``.

    Raises:
        Refusal: 409 if a run is under way or paused, the base model is gone or another one, or
            there is nothing to train on.
    """
    require_base_model(context, adapter)
    if request.override and not caller.may("train:override"):
        raise Refusal(
            403,
            "expected a token with the scope train:override, since 'override' is true; leave it "
            "out, or pair again with that scope",
        )
    run = runs.unfinished(session, adapter.id)
    if run is None:
        changed = (
            {} if request.training is None else request.training.model_dump(exclude_unset=True)
        )
        training = TrainingOptions.model_validate(adapter.training | changed)
        start = _start(context, session, adapter, request.warm_start)
        made = _new_run(context, session, caller, adapter, training, start)
        _take_wishes(session, made, request)
        return made
    if run.status == "paused":
        raise Refusal(
            409, f"run {run.id} of this adapter is paused; resume it, or cancel or restart it first"
        )
    if run.status != "interrupted":
        raise Refusal(
            409, f"run {run.id} of this adapter is {run.status} already; wait for its end"
        )
    if request.training is not None or request.warm_start is not False:
        raise Refusal(
            409,
            f"run {run.id} is to be gone on with, and its options are fixed; trigger it without "
            "'training' and 'warm_start', and give them to the run after it",
        )
    runs.requeue(session, run)
    _take_wishes(session, run, request)
    note(session, run, "resumed")
    return run


def _take_wishes(session: Session, run: Run, request: RunRequest) -> None:
    run.in_window = request.when == "window"
    run.override = request.override
    session.add(run)


def _start(
    context: Context, session: Session, adapter: Adapter, wanted: bool | int
) -> Version | None:
    """The version with which a new run is to begin."""
    if wanted is False:
        return None
    if wanted is True:
        version = versions.active(session, adapter.id)
        missing = "the adapter has no active version to begin with; name one by its number, or"
    else:
        version = versions.find(session, adapter.id, wanted)
        missing = f"the adapter has no version {wanted}; GET its /versions lists them, or"
    if version is None:
        raise Refusal(409, f"{missing} train without 'warm_start'")
    try:
        check_usable(context.home, context.models, adapter, version)
    except ActivationError as error:
        raise Refusal(409, str(error)) from None
    return version


def start_over(
    context: Context, session: Session, caller: Caller, adapter: Adapter, run: Run, asked_at: str
) -> Run:
    """Cancel ``run`` if it can still go on, and queue a new one with the same options.

    The new one begins at its first step, with the examples kept now and with the same version if
    the old one began with one.

    Raises:
        Refusal: 409 if ``run`` is being trained, another one of the adapter is under way, the base
            model is gone or another one, the version it began with is gone, or there is nothing to
            train on.
    """
    require_base_model(context, adapter)
    unfinished = runs.unfinished(session, adapter.id)
    if unfinished is not None and (unfinished.id != run.id or run.status == "running"):
        raise Refusal(
            409,
            f"run {unfinished.id} of this adapter is {unfinished.status} already; wait for its end",
        )
    if unfinished is not None:
        steer(session, run, "cancel", asked_at)
        note(session, run)
        session.flush()  # one run of an adapter may be unfinished: the old one gives its place
    start = _start(context, session, adapter, run.warm_start or False)
    return _new_run(context, session, caller, adapter, _options(context, adapter, run), start)


def _options(context: Context, adapter: Adapter, run: Run) -> TrainingOptions:
    """The run's own options; the adapter's where the run's spec is lost."""
    try:
        training = read_spec(context.home, run.id)["training"]
        known = {n: training[n] for n in TrainingOptions.model_fields if n in training}
        return TrainingOptions.model_validate(known)
    except (SpecError, ValidationError, LookupError, TypeError):
        return TrainingOptions.model_validate(adapter.training)


def require_base_model(context: Context, adapter: Adapter) -> None:
    """Refuse with 409 what the adapter's base model doesn't allow to be trained."""
    problem = base_model_problem(context.models, adapter.base_model, adapter.base_hash)
    if problem is not None:
        raise Refusal(409, problem)


def _new_run(
    context: Context,
    session: Session,
    caller: Caller,
    adapter: Adapter,
    training: TrainingOptions,
    start: Version | None,
) -> Run:
    if examples.counts(session, adapter.id).train == 0:
        raise Refusal(409, "the adapter has no training examples; post some first")
    return new_run(context.home, context.settings, session, adapter, caller.name, training, start)
