"""A phone in simulated time: the real conductor, chooser, gates and database, and no worker.

Wall clock, boot clock, zone, sensors and the length of a training are what the simulation says.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col

from service.gates.gatekeeper import Gatekeeper
from service.gates.limits import Limits
from service.home import Home
from service.models import ModelFolder
from service.nights.chooser import NightChooser
from service.nights.conductor import Conductor
from service.nights.moment import Moments
from service.runs.run_spec import read_spec
from service.sensors.readings import Reading, Readings
from service.settings import Settings
from storage import adapters, clients, examples, runs
from storage.database import Database
from storage.tables import Adapter, Client, Example, Run

MODEL = "simulated"
_BASE_HASH = "sha256:simulated"
_WEIGHTS = b"no weights"


@dataclass
class Clock:
    """What the phone's clocks show; they go only when they are told to."""

    now: datetime
    zone: tzinfo = UTC
    boot: float = 1000.0

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.boot += seconds

    @property
    def ms(self) -> int:
        return int(self.now.timestamp() * 1000)


@dataclass
class Sensors:
    """A plugged, charged and cool phone, but for what is said otherwise."""

    clock: Clock
    plugged: bool | None = True
    level: float | None = 100.0
    battery_temperature: float | None = 25.0
    reads: int = 0

    def read(self) -> Readings:
        self.reads += 1
        return Readings(
            plugged=self._of(self.plugged),
            full=self._of(False),
            level=self._of(self.level),
            battery_temperature=self._of(self.battery_temperature),
            skin_temperature=replace(self._of(None), absent=True),
            storage=self._of(64 * 2**30),
            memory=self._of(8 * 2**30),
        )

    def _of(self, value: Any) -> Reading[Any]:
        why = "it is silent" if value is None else None
        return Reading(value, "simulation", self.clock.boot, why)


@dataclass(frozen=True)
class Stretch:
    """One uninterrupted training: whose, of which run, from when to when, why, and its end."""

    adapter: str
    run: int
    begin: datetime
    end: datetime
    rule: str
    outcome: str

    @property
    def minutes(self) -> float:
        return (self.end - self.begin).total_seconds() / 60


@dataclass
class Trainer:
    """Stands where the supervisor does: trains one run at a time, each example for so long."""

    database: Database
    home: Home
    clock: Clock
    seconds_per_example: float = 60.0
    chooser: NightChooser | None = None
    training: int | None = None
    stretches: list[Stretch] = field(default_factory=list)
    duties: list[float] = field(default_factory=list)
    failing: bool = False
    waiting_because: str | None = None
    _left: dict[int, float] = field(default_factory=dict)
    _began: datetime = datetime.min
    _rule: str = ""

    def set_duty(self, duty: float) -> None:
        self.duties.append(duty)

    def wake(self) -> None:
        if self.training is not None or self.chooser is None:
            return
        with self.database.read() as session:
            choice = self.chooser.choose(session)
        if choice.run_id is None and choice.adapter_id is None:
            return
        with self.database.write() as session:
            choice = self.chooser.choose(session)
            run = (
                self.chooser.make_run(session, choice.adapter_id)
                if choice.adapter_id is not None
                else runs.by_id(session, choice.run_id or 0)
            )
            assert run is not None
            if choice.adapter_id is not None:
                run.created_at = self.clock.ms
            runs.start(session, run)
            run.worked_at = self.clock.ms
        self.training, self._began = run.id, self.clock.now
        assert self.chooser.chosen is not None
        self._rule = self.chooser.chosen.rule
        if run.id not in self._left:
            ids = read_spec(self.home, run.id)["train_example_ids"]
            self._left[run.id] = self.seconds_per_example * len(ids)

    def interrupt(self, run_id: int, because: str) -> None:
        if run_id == self.training:
            self._end("interrupted", because)

    def work(self, seconds: float) -> None:
        """Train for so long; the run may complete (or fail) in it."""
        if self.training is None:
            return
        self._left[self.training] -= seconds
        if self._left[self.training] <= 0:
            self._end("failed" if self.failing else "completed", None)

    def _end(self, outcome: Any, error: str | None) -> None:
        assert self.training is not None
        with self.database.write() as session:
            run = runs.by_id(session, self.training)
            if run is not None:
                runs.end(session, run, outcome, error)
                run.worked_at = self.clock.ms
                self._note(session, run, outcome if error is None else f"{outcome}: {error}")
                if outcome == "completed":
                    ids = read_spec(self.home, run.id)["train_example_ids"]
                    examples.mark_used(session, ids, unchanged_since=self.clock.ms)
        self.training = None

    def _note(self, session: Session, run: Run, outcome: str) -> None:
        adapter = adapters.by_id(session, run.adapter_id)
        assert adapter is not None
        stretch = Stretch(adapter.name, run.id, self._began, self.clock.now, self._rule, outcome)
        self.stretches.append(stretch)


class SimulatedPhone:
    """All of it together, on a home folder."""

    def __init__(self, folder: Path, now: datetime, zone: tzinfo = UTC) -> None:
        """Begin at that instant (aware)."""
        self.home = Home.at(folder)
        self.home.create()
        _add_model(self.home)
        self.database = Database(self.home.database)
        self.clock = Clock(now, zone)
        self.sensors = Sensors(self.clock)
        self.trainer = Trainer(self.database, self.home, self.clock)
        self.moments = Moments(lambda: self.clock.now, lambda: self.clock.zone)
        self.models = ModelFolder(self.home.models)
        self.settings = Settings(home=folder)
        self.start_daemon()

    def start_daemon(self) -> None:
        """Begin with nothing but what is in the home, as a daemon does that was killed."""
        self.gatekeeper = Gatekeeper(Limits(), lambda: self.clock.boot)
        self.chooser = NightChooser(
            self.settings, self.home, self.models, self.moments, self.gatekeeper
        )
        self.trainer.chooser = self.chooser
        self.conductor = Conductor(
            self.database,
            self.trainer,
            self.chooser,
            self.moments,
            self.gatekeeper,
            self.sensors,
            pace=lambda readings: 1.0,
            boot=lambda: self.clock.boot,
        )

    def close(self) -> None:
        self.database.close()

    def tick(self) -> datetime | None:
        return self.conductor.tick()

    def pass_time(self, seconds: float, tick: float = 30.0) -> None:
        """Let time pass as it does while the phone is awake, with a tick every ``tick`` seconds."""
        while seconds > 0:
            step = min(tick, seconds)
            self.clock.advance(step)
            self.trainer.work(step)
            self.tick()
            seconds -= step

    def run_until(self, end: datetime, tick: float = 120.0, idle: float = 1800.0) -> None:
        """Let time pass until then; while nothing trains it looks only so often, and on time."""
        change = self.tick()
        while self.clock.now < end:
            step = tick if self.trainer.training is not None else idle
            left = (end - self.clock.now).total_seconds()
            if change is not None:
                left = min(left, max((change - self.clock.now).total_seconds(), 0.001))
            step = min(step, left)
            self.clock.advance(step)
            self.trainer.work(step)
            change = self.tick()

    def sleep(self, seconds: float) -> None:
        """Suspend the phone: the clocks go on, and nothing else."""
        self.clock.advance(seconds)

    def add_adapter(self, name: str, client: str = "owner", **night: Any) -> int:
        with self.database.write() as session:
            digest = hashlib.sha256(client.encode()).digest()
            owner = clients.put(session, client, digest)
            adapter = _adapter(owner, name, night)
            return adapters.create(session, adapter).id

    def add_examples(self, adapter_id: int, count: int) -> list[int]:
        """Training examples that come now."""
        with self.database.write() as session:
            adapter = adapters.by_id(session, adapter_id)
            assert adapter is not None
            first = self.clock.boot
            given = [
                examples.NewExample(f"text {first} {number}", "now", "train")
                for number in range(count)
            ]
            ids = [row.id for row in examples.add(session, adapter, given)]
            came = {"created_at": self.clock.ms, "changed_at": self.clock.ms}
            session.exec(update(Example).where(col(Example.id).in_(ids)).values(**came))
        return ids


def _adapter(owner: Client, name: str, night: dict[str, Any]) -> Adapter:
    return Adapter(
        client_id=owner.id,
        name=name,
        base_model=MODEL,
        base_hash=_BASE_HASH,
        method="first_order",
        rank=8,
        alpha=16.0,
        targets=["q_proj"],
        use_rslora=False,
        max_tokens=512,
        too_long="refuse",
        training={},
        night=night,
    )


def _add_model(home: Home) -> None:
    folder = home.models / MODEL
    folder.mkdir(exist_ok=True)
    (folder / "weights.lorad").write_bytes(_WEIGHTS)
    (folder / "tokenizer.json").write_bytes(b"{}")
    manifest = {
        "manifest_version": 1,
        "name": MODEL,
        "base_hash": _BASE_HASH,
        "format": "int8",
        "config": {"num_hidden_layers": 1},
        "parameters": 1,
        "context_length": 512,
        "template_tokens": 20,
        "weights": {"file": "weights.lorad", "bytes": len(_WEIGHTS)},
        "tokenizer": {"file": "tokenizer.json", "sha256": hashlib.sha256(b"{}").hexdigest()},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
