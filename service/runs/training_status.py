"""Why an adapter isn't being trained now, in words."""

from sqlmodel import Session

from service.models import ModelError, ModelFolder
from storage import runs, versions
from storage.examples import Counts
from storage.tables import Adapter, Run


def base_model_problem(models: ModelFolder, adapter: Adapter) -> str | None:
    """What keeps the adapter's base model from being trained on."""
    try:
        model = models.get(adapter.base_model)
    except ModelError as error:
        return str(error)
    if model.base_hash != adapter.base_hash:
        return (
            f"the adapter was made for the base model {adapter.base_hash}, but the model "
            f"'{adapter.base_model}' is now {model.base_hash}; create a new adapter for it"
        )
    return None


def not_training_because(
    session: Session,
    adapter: Adapter,
    counts: Counts,
    models: ModelFolder,
    waiting_because: str | None,
) -> str | None:
    """The reason, or None while the adapter is being trained.

    ``waiting_because`` is the supervisor's reason for not starting any queued run.
    """
    run = runs.unfinished(session, adapter.id)
    if run is not None and run.status == "running":
        return None
    if run is not None and run.status == "queued":
        return _queued(session, run, waiting_because)
    problem = base_model_problem(models, adapter)
    if problem is not None:
        return problem
    if run is not None and run.status == "paused":
        return f"run {run.id} is {run.error}; POST /v1/runs/{run.id}/resume goes on with it"
    if run is not None:
        return f"run {run.id} was interrupted: {run.error}"
    if counts.train == 0:
        return "it has no training examples yet"
    last = runs.latest(session, adapter.id)
    if last is not None and last.status == "failed":
        return f"run {last.id} failed: {last.error}"
    trigger = f"POST /v1/adapters/{adapter.name}/runs starts a training"
    if last is not None and last.status == "cancelled":
        return f"run {last.id} was {last.error}; {trigger}"
    if counts.pending == 0:
        version = None if last is None else versions.of_run(session, last.id)
        seen = "a version" if version is None else f"version {version.number}"
        return f"{seen} was trained on all {counts.train} training examples; {trigger} anyway"
    return f"nobody has asked for it: {counts.pending} training examples are waiting; {trigger}"


def _queued(session: Session, run: Run, waiting_because: str | None) -> str:
    if runs.running(session) is not None:  # perhaps another client's: it has no name here
        return f"run {run.id} waits for another training to end; one trains at a time"
    return waiting_because or f"run {run.id} is about to start"
