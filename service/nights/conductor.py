"""The conductor: every tick it looks at the moment and lets training begin, go on or stop."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from sqlalchemy.exc import DatabaseError
from sqlmodel import Session

from service.boot_clock import boot_seconds
from service.gates.changes import ChangeKind
from service.gates.gatekeeper import Gatekeeper
from service.gates.verdict import GateVerdict
from service.nights.chooser import NightChooser
from service.nights.meter import Charge, InTraining, Meter
from service.nights.moment import Moment, Moments
from service.nights.night_log import GateLog, note_closed, note_opened
from service.nights.outlook import Outlook
from service.nights.permission import refusal_of
from service.nights.ticker import Ticker
from service.sensors.readings import Readings
from storage import adapters, history, nights, runs, training_pause
from storage.database import Database
from storage.ledgers import Night
from storage.tables import Adapter, Run

_FRESH_SECONDS = 60.0

_log = logging.getLogger("lorad.conductor")


class Trainer(Protocol):
    """What the conductor asks of the supervisor."""

    waiting_because: str | None

    @property
    def training(self) -> int | None:
        """The id of the run that is being trained."""
        ...

    def interrupt(self, run_id: int, because: str) -> None:
        """Stop the run, to go on when it may."""
        ...

    def set_duty(self, duty: float) -> None:
        """Let the worker work this share of the time."""
        ...

    def wake(self) -> None:
        """Look what can be trained."""
        ...


class Looker(Protocol):
    """What the conductor asks of the sensors."""

    def read(self) -> Readings:
        """The readings of now."""
        ...


class Conductor:
    """One look at a time, from the ticker's thread."""

    def __init__(
        self,
        database: Database,
        trainer: Trainer,
        chooser: NightChooser,
        moments: Moments,
        gatekeeper: Gatekeeper,
        sensors: Looker,
        *,
        pace: Callable[[Readings], float],
        boot: Callable[[], float] = boot_seconds,
    ) -> None:
        """``pace`` tells the share of the time that a worker may work, ``boot`` is the clock."""
        self._database = database
        self._trainer = trainer
        self._chooser = chooser
        self._moments = moments
        self._gatekeeper = gatekeeper
        self._sensors = sensors
        self._pace = pace
        self._boot = boot
        self._ticker = Ticker(self.tick)
        self._looking = threading.Lock()
        self._stopping = False
        self._asked = False
        self._read_at: float | None = None
        self._meter = Meter()
        self._gate_log = GateLog()

    def start(self) -> None:
        """Begin to look."""
        self._ticker.start()

    def stop(self) -> None:
        """Begin no further look; a sensor that hangs is not waited for."""
        self._stopping = True
        self._ticker.stop()

    def nudge(self) -> None:
        """Look again soon: something has changed that decides who may train. Never waits.

        What the last look allows is begun at once; the new one may have to wait for a sensor.
        """
        self._trainer.wake()
        self._ticker.nudge()

    def verdicts(self) -> tuple[GateVerdict, ...]:
        """The gates at the last look; if that is a minute ago, has the sensors read. Never waits.

        Who asks again a few seconds later is told what they say now.
        """
        if self._read_at is None or self._boot() - self._read_at > _FRESH_SECONDS:
            self._asked = True
            self.nudge()
        return self._gatekeeper.verdicts

    def moment(self, session: Session) -> Moment:
        """The moment in the session's snapshot, without a look at any adapter."""
        return self._moments.look(session)

    def outlook(self, session: Session) -> Outlook:
        """How it is with every adapter now, in the session's snapshot."""
        moment = self.moment(session)
        line = self._chooser.line(session, moment)
        return Outlook(
            moment,
            {one.facts.adapter_id: one for one in line},
            self._chooser.chosen,
            any(one.rule == "training" for one in line),
            self._gatekeeper.refusal,
            self._trainer.waiting_because,
        )

    def tick(self) -> datetime | None:
        """Look once; when something will change by itself (a window, the pause), if ever."""
        with self._looking:
            try:
                return self._look()
            except DatabaseError as error:
                _log.error("the moment can't be looked at: %s", error.orig)
                return None
            finally:  # what the looks before allow need not wait for the next one
                self._trainer.wake()

    def _look(self) -> datetime | None:
        self._moments.refresh()
        with self._database.read() as session:
            moment = self._moments.look(session)
            found = self._in_training(session)
            wanted = found is not None or self._chooser.wants_to_train(session, moment)
        readings = None
        if wanted or self._asked:
            self._asked = False
            readings = self._sensors.read()
            self._read_at = self._boot()
            if self._stopping:
                return None
            self._gatekeeper.update(readings, self._read_at, training=found is not None)
        news = self._gate_log.news(self._gatekeeper.verdicts) if wanted else []
        moment = self._keep_books(moment, found, readings if wanted else None, news)
        if found is not None:
            self._judge(moment, *found, readings)
        return moment.next_change

    def _in_training(self, session: Session) -> tuple[Run, Adapter] | None:
        run_id = self._trainer.training
        run = None if run_id is None else runs.by_id(session, run_id)
        if run is None or run.status != "running":
            return None
        adapter = adapters.by_id(session, run.adapter_id)
        return None if adapter is None else (run, adapter)

    def _judge(self, moment: Moment, run: Run, adapter: Adapter, readings: Readings | None) -> None:
        with self._database.read() as session:
            used = {} if moment.night_id is None else nights.usage(session, moment.night_id)
        gates = self._gatekeeper.refusal(run.override)
        because = refusal_of(run, adapter, moment, gates, used.get(adapter.id, 0.0))
        if because is not None:
            self._trainer.interrupt(run.id, because)
        elif readings is not None:  # every time: a worker that was started anew knows nothing
            self._trainer.set_duty(self._pace(readings))

    def _keep_books(
        self,
        moment: Moment,
        found: tuple[Run, Adapter] | None,
        readings: Readings | None,
        news: list[tuple[ChangeKind, str]],
    ) -> Moment:
        """Write down what has changed; the moment with its night entered."""
        with self._database.read() as session:
            still_open = nights.open_ones(session)
            night = next((one for one in still_open if one.id == moment.night_id), None)
            lapsed = training_pause.has_lapsed(session, moment.now_ms)
            charges = self._charges(session, moment, found)
        left = [one.id for one in still_open if one is not night]
        enters = moment.opening is not None and night is None
        measured = night is not None and _measures(night, readings) != _measures(night, None)
        if not (left or enters or lapsed or news or charges or measured):
            return moment
        with self._database.write() as session:
            for kind, message in news:
                history.add(session, kind, message)
            if lapsed:
                training_pause.lapse(session, moment.now_ms)
            for charge in charges:
                nights.charge(session, charge.night_id, charge.adapter_id, charge.seconds)
            for one in still_open:
                if one.id in left:
                    note_closed(session, one, moment)
                    nights.leave(session, one.id, moment.now_ms)
            if moment.opening is not None:
                night = nights.enter(session, moment.opening.key, moment.now_ms)
                if enters:
                    note_opened(session, night, moment)
                night.first_level, night.last_level, night.hottest = _measures(night, readings)
            session.flush()
            return self._moments.look(session)

    def _charges(
        self, session: Session, moment: Moment, found: tuple[Run, Adapter] | None
    ) -> list[Charge]:
        training = None
        if found is not None and found[0].in_window and moment.night_id is not None:
            run, adapter = found
            training = InTraining(run.id, adapter.id, moment.night_id)
        ended = None
        if (seen := self._meter.seen) is not None:
            row = runs.by_id(session, seen.run_id)
            ended = None if row is None or row.status == "running" else row.worked_at
        return self._meter.read(self._boot(), moment.now_ms, training, ended)


def _measures(
    night: Night, readings: Readings | None
) -> tuple[float | None, float | None, float | None]:
    """The night's first and last level and its highest temperature, with these readings too."""
    level = None if readings is None else readings.level.value
    temperature = None if readings is None else readings.battery_temperature.value
    known = [one for one in (night.hottest, temperature) if one is not None]
    return (
        level if night.first_level is None else night.first_level,
        night.last_level if level is None else level,
        max(known, default=None),
    )
