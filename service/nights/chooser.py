"""What is trained next: what has been asked for first, then whom the night's rule names."""

from dataclasses import dataclass

from sqlmodel import Session

from api_schemas.nights import NightOptions, Rule
from api_schemas.training import TrainingOptions
from service.gates.gatekeeper import Gatekeeper
from service.home import Home
from service.models import ModelFolder
from service.nights.facts import read_facts
from service.nights.moment import Moment, Moments
from service.nights.selection import Standing, line_up
from service.nights.words import why_due
from service.runs.chooser import Choice
from service.runs.new_run import new_run
from service.runs.run_log import note_words
from service.settings import Settings
from service.versions.activation import ActivationError, check_usable
from storage import adapters, clients, versions
from storage.tables import Adapter, Run, Version


@dataclass(frozen=True)
class Chosen:
    """By which rule an adapter was last chosen, and that in words."""

    adapter_id: int
    rule: Rule
    words: str


class NightChooser:
    """Answers the supervisor. New runs are made when their turn comes, with the newest examples."""

    def __init__(
        self,
        settings: Settings,
        home: Home,
        models: ModelFolder,
        moments: Moments,
        gatekeeper: Gatekeeper,
    ) -> None:
        """Bind to a home, and to what tells the moment and the gates."""
        self._settings = settings
        self._home = home
        self._models = models
        self._moments = moments
        self._gatekeeper = gatekeeper
        self.chosen: Chosen | None = None
        """The last choice; only the supervisor's thread makes one."""

    def choose(self, session: Session) -> Choice:
        """See `service.runs.chooser.Chooser`."""
        moment = self._moments.look(session)
        waiting = self._waiting(session, moment)
        ready = _ready(waiting, moment)
        if not waiting:
            return Choice()
        if moment.paused:
            return Choice(because=moment.pause())
        if not ready:
            return Choice(because=moment.next_window())
        for standing in ready:
            run = standing.facts.run
            if self._gatekeeper.refusal(run is not None and run.override) is None:
                adapter_id = standing.facts.adapter_id
                self.chosen = Chosen(adapter_id, standing.rule, why_due(standing))
                return Choice(adapter_id=adapter_id) if run is None else Choice(run_id=run.id)
        return Choice(because=self._gatekeeper.refusal(False))

    def wants_to_train(self, session: Session, moment: Moment) -> bool:
        """Whether anything would be trained now if all gates were open."""
        if moment.paused:
            return False
        return bool(_ready(self._waiting(session, moment), moment))

    def line(self, session: Session, moment: Moment) -> list[Standing]:
        """How it is with every adapter, whether or not a window is open."""
        return line_up(read_facts(session, self._models, moment), moment.now_ms)

    def _waiting(self, session: Session, moment: Moment) -> list[Standing]:
        """Who is due; while no window is open, only those whose run waits already."""
        closed = moment.opening is None
        facts = read_facts(session, self._models, moment, unfinished_only=closed)
        return [one for one in line_up(facts, moment.now_ms) if one.place is not None]

    def make_run(self, session: Session, adapter_id: int) -> Run:
        """See `service.runs.chooser.Chooser`."""
        adapter = adapters.by_id(session, adapter_id)
        assert adapter is not None  # chosen in this transaction
        client = clients.by_id(session, adapter.client_id)
        assert client is not None  # a foreign key
        training = TrainingOptions.model_validate(adapter.training)
        start = self._start(session, adapter)
        run = new_run(self._home, self._settings, session, adapter, client.name, training, start)
        run.origin, run.in_window = "night", True
        session.add(run)
        if self.chosen is not None and self.chosen.adapter_id == adapter_id:
            words = f"run {run.id} was made by the night's rule {self.chosen.rule}"
            if start is not None:
                words += f" and begins with version {start.number}"
            note_words(session, run, "run-chosen", f"{words}: {self.chosen.words}")
        return run

    def _start(self, session: Session, adapter: Adapter) -> Version | None:
        """The version that the adapter's nights begin with, if they do and it can be used."""
        if not NightOptions.model_validate(adapter.night).warm_start:
            return None
        version = versions.active(session, adapter.id)
        try:
            if version is not None:
                check_usable(self._home, self._models, adapter, version)
        except ActivationError:
            return None
        return version


def _ready(waiting: list[Standing], moment: Moment) -> list[Standing]:
    """Those that the schedule lets train at the moment."""
    return [one for one in waiting if moment.opening is not None or not one.in_window]
