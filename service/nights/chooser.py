"""What is trained next."""

from sqlmodel import Session

from api_schemas.training import TrainingOptions
from service.home import Home
from service.runs.backoff import waits
from service.runs.chooser import Choice
from service.runs.new_run import new_run
from service.settings import Settings
from storage import adapters, clients, runs
from storage.clock import now_ms
from storage.tables import Run


class NightChooser:
    """Answers the supervisor: what has been asked for first, then whom the night's rule names."""

    def __init__(self, settings: Settings, home: Home) -> None:
        """Bind to a home."""
        self._settings = settings
        self._home = home

    def choose(self, session: Session) -> Choice:
        """See `service.runs.chooser.Chooser`."""
        now = now_ms()
        startable = (run for run in runs.waiting(session) if not waits(run.not_before, now))
        run = next(startable, None)
        return Choice() if run is None else Choice(run_id=run.id)

    def make_run(self, session: Session, adapter_id: int) -> Run:
        """See `service.runs.chooser.Chooser`."""
        adapter = adapters.by_id(session, adapter_id)
        assert adapter is not None  # chosen in this transaction
        client = clients.by_id(session, adapter.client_id)
        assert client is not None  # a foreign key
        training = TrainingOptions.model_validate(adapter.training)
        run = new_run(self._home, self._settings, session, adapter, client.name, training)
        run.origin, run.in_window = "night", True
        session.add(run)
        return run
