"""A new run: its row, and its spec with the examples that are kept now."""

from sqlmodel import Session

from api_schemas.training import TrainingOptions
from service.home import Home
from service.runs.run_log import note
from service.runs.run_spec import write_spec
from service.settings import Settings
from service.versions.files import active_to_beat
from storage import examples, runs
from storage.tables import Adapter, Run, Version


def new_run(
    home: Home,
    settings: Settings,
    session: Session,
    adapter: Adapter,
    client: str,
    training: TrainingOptions,
    start: Version | None = None,
) -> Run:
    """Queue a run of the adapter in the writer's ``session``.

    The caller has made sure that it has training examples and no unfinished run, and that the
    version ``start``, with which the run is to begin, can be used.
    """
    run = runs.enqueue(session, adapter.id)
    run.warm_start = None if start is None else start.number
    write_spec(
        home,
        settings,
        run,
        adapter,
        client,
        training,
        examples.ids(session, adapter.id, "train"),
        examples.ids(session, adapter.id, "holdout"),
        active_to_beat(home, session, adapter.id),
        start,
    )
    note(session, run)
    return run
