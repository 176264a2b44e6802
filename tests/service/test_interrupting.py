"""What the nights ask of the supervisor: a worker's duty, and a run interrupted with a reason."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import Session

from service.home import Home
from service.runs.chooser import Choice
from service.runs.run_feed import RunFeed
from service.runs.supervisor import Supervisor
from service.settings import Settings
from storage import adapters, clients, examples, runs
from storage.database import Database
from storage.examples import NewExample
from storage.tables import Run
from tests.service.daemon import ROOT, until
from tests.service.test_adoption import new_adapter

BECAUSE = "the window ended; goes on in the next one, at 23:00"


class Once:
    """Chooses the one run for as long as it has never been started."""

    def choose(self, session: Session) -> Choice:
        run = runs.by_id(session, 1)
        assert run is not None
        return Choice(run_id=1) if run.status == "queued" else Choice(because="not now")

    def make_run(self, session: Session, adapter_id: int) -> Run:
        raise AssertionError("nobody asked for a new run")


class House:
    """A supervisor in this process, with one queued run."""

    def __init__(self, home: Home) -> None:
        self.home = home
        home.create()
        self.database = Database(home.database)
        with self.database.write() as session:
            owner = clients.put(session, "owner", b"\x01" * 32)
            adapter = adapters.create(session, new_adapter(owner.id))
            rows = examples.add(session, adapter, [NewExample("text", "now", "train")])
            ids = [row.id for row in rows]
            assert runs.enqueue(session, adapter.id).id == 1
        home.run(1).mkdir()
        spec = {"train_example_ids": ids, "holdout_example_ids": []}
        (home.run(1) / "spec.json").write_text(json.dumps(spec))
        script = {"steps": 10_000, "step_seconds": 0.05}
        (home.path / "script.json").write_text(json.dumps(script))
        settings = Settings(worker_module="tests.service.stand_in_worker", stop_seconds=20)
        self.supervisor = Supervisor(settings, home, self.database, RunFeed(), Once())

    def run(self) -> Run:
        with self.database.read() as session:
            run = runs.by_id(session, 1)
        assert run is not None
        return run

    def worker_log(self) -> str:
        log = self.home.run(1) / "worker.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    house = House(Home.at(tmp_path / "home"))
    yield house
    house.supervisor.stop()
    house.database.close()


def test_a_run_is_interrupted_with_the_reason_that_was_given(house: House) -> None:
    house.supervisor.start()
    until(lambda: house.run().step >= 2)
    house.supervisor.interrupt(99, "another run's reason")
    house.supervisor.interrupt(1, BECAUSE)
    until(lambda: house.run().status == "interrupted")
    run = house.run()
    assert (run.error, run.not_before, run.kills) == (BECAUSE, None, 0)
    assert run.checkpoint_step == run.step >= 2
    assert run.worked_at is not None
    assert run.worked_at >= (run.started_at or 0)
    until(lambda: house.supervisor.waiting_because == "not now")


def test_each_new_worker_is_told_the_duty_that_holds(house: House) -> None:
    house.supervisor.set_duty(0.35)
    house.supervisor.start()
    until(lambda: "duty 0.350" in house.worker_log())
    house.supervisor.set_duty(0.5)
    until(lambda: "duty 0.500" in house.worker_log())
