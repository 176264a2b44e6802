"""A new run: its row, and its spec with the examples that are kept now."""

from sqlmodel import Session

from api_schemas.training import TrainingOptions
from service.home import Home
from service.runs.run_log import note
from service.runs.run_spec import write_spec
from service.settings import Settings
from storage import examples, runs, versions
from storage.tables import Adapter, Run


def new_run(
    home: Home,
    settings: Settings,
    session: Session,
    adapter: Adapter,
    client: str,
    training: TrainingOptions,
) -> Run:
    """Queue a run of the adapter in the writer's ``session``.

    The caller has made sure that it has training examples and no unfinished run.
    """
    run = runs.enqueue(session, adapter.id)
    write_spec(
        home,
        settings,
        run,
        adapter,
        client,
        training,
        examples.ids(session, adapter.id, "train"),
        examples.ids(session, adapter.id, "holdout"),
        versions.active(session, adapter.id),
    )
    note(session, run)
    return run
