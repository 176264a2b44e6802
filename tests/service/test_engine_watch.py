"""An engine of the NPU that takes its worker down is demoted, and the run goes on without it."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.engine_files import EngineFiles
from service.runs.engine_watch import NATIVE_CRASHES, Ended, EngineWatch
from service.runs.run_end import RunEnd
from storage import history
from storage.database import Database
from tests.service.daemon import Daemon, add_stand_in_model

CRASHED = RunEnd("interrupted", "SIGSEGV; see LOG", "crash", 12, backs_off=True)
ENDED = Ended(run_id=7, pid=123, exit_code=-signal.SIGSEGV, killed=False, hung=None)


class Bench:
    """A watch over a home with a database, and a worker's mark that is made by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "engine"
        self.folder.mkdir()
        self.files = EngineFiles(self.folder)
        self.database = Database(folder / "lorad.db")
        self.watch = EngineWatch(self.files, self.database)

    def put_mark(self, **changes: Any) -> None:
        mark = {"engine": "qnn", "form": "table", "phase": "training", "run": 7, "pid": 123}
        mark |= {"fingerprint": "sha256:a", "unexplained": 0}
        (self.folder / "in-use.json").write_text(json.dumps(mark | changes))

    def told(self) -> list[tuple[str, str]]:
        with self.database.read() as session:
            rows = history.page(session, None, before=None, limit=50)
        return [(row.kind, row.message) for row in reversed(rows)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.database:
        yield made


@pytest.mark.parametrize("exit_code", sorted(NATIVE_CRASHES))
def test_every_native_crash_with_the_mark_demotes(bench: Bench, exit_code: int) -> None:
    bench.watch.before_start()
    bench.put_mark()
    end = bench.watch.after_end(replace(ENDED, exit_code=exit_code), CRASHED)
    assert end == replace(CRASHED, demoted="qnn")
    [demotion] = bench.files.demotions()
    assert (demotion.engine, demotion.fingerprint) == ("qnn", "sha256:a")
    assert (demotion.phase, demotion.run, demotion.step) == ("training", 7, 12)
    assert demotion.cause == (
        f"{signal.Signals(-exit_code).name} at step 12 while qnn (form table) was in use; "
        "the worker.log of that run says more"
    )
    assert "run 7" not in demotion.cause, "others may read it"
    assert bench.files.mark() is None
    [(kind, words)] = bench.told()
    assert kind == "engine-demoted"
    assert demotion.cause in words


@pytest.mark.parametrize(
    ("phase", "step", "place"),
    [
        ("opening", None, "while qnn (form table) was opened"),
        ("first product", None, "while qnn (form table) computed its first product"),
        ("later than we know", 3, "at step 3 while qnn (form table) was in use"),
    ],
)
def test_the_cause_says_at_what(bench: Bench, phase: str, step: int | None, place: str) -> None:
    bench.watch.before_start()
    bench.put_mark(phase=phase)
    killed = replace(ENDED, exit_code=-signal.SIGKILL, killed=True, hung="no sign of life for 60 s")
    bench.watch.after_end(killed, replace(CRASHED, setback="hang", step=step))
    [demotion] = bench.files.demotions()
    assert demotion.cause.startswith(f"no sign of life for 60 s {place}")


def test_a_kill_by_somebody_else_leaves_the_mark_for_the_next_worker(bench: Bench) -> None:
    bench.watch.before_start()
    bench.put_mark(phase="opening")
    killed = replace(ENDED, exit_code=-signal.SIGKILL)
    assert bench.watch.after_end(killed, CRASHED) is CRASHED
    assert bench.files.mark() is not None
    assert (bench.files.demotions(), bench.told()) == ([], [])


def test_a_kill_for_stopping_too_late_explains_the_death(bench: Bench) -> None:
    bench.watch.before_start()
    bench.put_mark(phase="opening")
    killed = replace(ENDED, exit_code=-signal.SIGKILL, killed=True)
    assert bench.watch.after_end(killed, CRASHED) is CRASHED
    assert bench.files.mark() is None
    assert bench.files.demotions() == []


def test_a_silence_that_ended_before_the_kill_is_no_hang(bench: Bench) -> None:
    bench.watch.before_start()
    bench.put_mark()
    bench.watch.after_end(replace(ENDED, exit_code=1, killed=True, hung="for 60 s"), CRASHED)
    assert bench.files.demotions() == []


@pytest.mark.parametrize("exit_code", [0, 1, 3, 75, 76, -signal.SIGTERM, -signal.SIGPIPE])
def test_no_other_end_demotes(bench: Bench, exit_code: int) -> None:
    bench.watch.before_start()
    bench.put_mark()
    assert bench.watch.after_end(replace(ENDED, exit_code=exit_code), CRASHED) is CRASHED
    assert bench.files.demotions() == []


@pytest.mark.parametrize("changes", [{"pid": 124}, {"run": 8}, {"engine": None}])
def test_the_mark_of_another_is_not_this_workers(bench: Bench, changes: dict[str, Any]) -> None:
    bench.watch.before_start()
    bench.put_mark(**changes)
    assert bench.watch.after_end(ENDED, CRASHED) is CRASHED
    assert bench.files.demotions() == []


def test_one_that_lay_there_before_is_of_another_boot_though_its_numbers_are_the_same(
    bench: Bench,
) -> None:
    bench.put_mark()
    bench.watch.before_start()
    assert bench.watch.after_end(ENDED, CRASHED) is CRASHED
    assert bench.files.demotions() == []
    assert bench.files.mark() is not None


def test_a_worker_that_opens_what_is_demoted_is_counted_as_any_that_crashes(bench: Bench) -> None:
    for expected in ("qnn", None):
        bench.watch.before_start()
        bench.put_mark()
        assert bench.watch.after_end(ENDED, CRASHED).demoted == expected
        assert bench.files.mark() is None
    assert len(bench.files.demotions()) == len(bench.told()) == 1


def test_what_cannot_be_demoted_is_counted_as_any_that_crashes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.watch.before_start()
    bench.put_mark()
    bench.folder.chmod(0o500)
    (bench.folder / "demotions.json").mkdir()
    assert bench.watch.after_end(ENDED, CRASHED) is CRASHED
    assert "qnn can't be demoted" in caplog.text


def test_what_others_demote_and_restore_is_told_between_workers(bench: Bench) -> None:
    unfit = {"engine": "qnn", "fingerprint": "sha256:a", "cause": "the self-test failed"}
    path = bench.folder / "demotions.json"
    bench.watch.before_start()
    path.write_text(json.dumps({"demotions": [unfit]}))  # by the worker's doctor
    bench.watch.after_end(replace(ENDED, exit_code=0), CRASHED)
    [(kind, words)] = bench.told()
    assert (kind, "the self-test failed" in words) == ("engine-demoted", True)
    EngineWatch(bench.files, bench.database).before_start()
    assert len(bench.told()) == 1, "known since an earlier daemon"
    path.write_text('{"demotions": []}')  # by lorad doctor --again
    bench.watch.before_start()
    bench.watch.before_start()
    assert [kind for kind, _ in bench.told()] == ["engine-demoted", "engine-restored"]


def test_what_the_database_could_not_take_is_told_next_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from sqlalchemy.exc import OperationalError

    def full(*arguments: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    bench.watch.before_start()
    bench.put_mark()
    with monkeypatch.context() as disk:
        disk.setattr(history, "add", full)
        assert bench.watch.after_end(ENDED, CRASHED).demoted == "qnn"
    assert "disk is full" in caplog.text
    bench.watch.before_start()
    assert [kind for kind, _ in bench.told()] == ["engine-demoted"]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that calls three seconds of silence a hang, and whose runs soon go on."""
    home = tmp_path_factory.mktemp("strict") / "home"
    add_stand_in_model(home)
    environment = {"LORAD_HANG_SECONDS": "3", "LORAD_RETRY_SECONDS": "0.2"}
    environment |= {"LORAD_STOP_SECONDS": "1", "LORAD_FORM": "inputs", "LORAD_SOC": "SM8750"}
    with Daemon(home, environment=environment) as daemon:
        yield daemon


def begun(daemon: Daemon, name: str, **script: Any) -> int:
    """A run on a device of its own, so that no other test's demotion counts."""
    daemon.name = name
    daemon.create_adapter()
    daemon.post_examples()
    daemon.script(npu=f"sha256:{name}", **script)
    return daemon.train()


def ended(daemon: Daemon, run_id: int, seconds: float = 40) -> dict[str, Any]:
    return daemon.wait_for(run_id, lambda run: run["finished_at"] is not None, seconds)


def kinds(daemon: Daemon, run_id: int) -> list[str]:
    rows = daemon.http.get("/v1/history", params={"adapter": daemon.name}).json()["entries"]
    found = [row["kind"] for row in reversed(rows) if row["run"] == run_id]
    return [kind for kind in found if kind not in ("run-checkpoint", "version-promoted")]


def demotions(daemon: Daemon) -> list[dict[str, Any]]:
    path = daemon.home / "engine/demotions.json"
    listed = json.loads(path.read_text())["demotions"] if path.exists() else []
    return [one for one in listed if one["fingerprint"] == f"sha256:{daemon.name}"]


@pytest.mark.parametrize(("how", "kind"), [("SIGSEGV", "run-crashed"), ("hang", "run-hung")])
def test_a_run_whose_engine_fails_goes_on_from_its_checkpoint_without_it(
    strict: Daemon, how: str, kind: str
) -> None:
    script = {"suffers": how, "suffers_at": 8, "suffers_times": 9, "steps": 14}
    run_id = begun(strict, f"engine-{how.lower()}", **script)
    run = ended(strict, run_id)
    assert (run["status"], run["resumed_from"], run["error"]) == ("completed", 5, None)
    assert run["engine"]["engine"] == "torch_cpu"
    assert [step for step, _ in run["losses"]] == list(range(1, 15))
    assert run["setbacks"] == {"kills": 0, "crashes": 0, "halvings": 0}
    [demotion] = demotions(strict)
    assert (demotion["engine"], demotion["run"], demotion["step"]) == ("qnn", run_id, 7)
    assert demotion["cause"] in run["engine"]["why"]
    assert not (strict.home / "engine/in-use.json").exists()
    assert sorted(kinds(strict, run_id)) == sorted(
        ["run-queued", "run-started", kind, "engine-demoted", "run-started", "run-completed"]
    )
    spec = strict.spec(run_id)
    assert (spec["form"], spec["soc"]) == ("inputs", "SM8750")


@pytest.mark.slow
def test_a_hang_while_the_engine_is_opened_is_found_too(home: Path) -> None:
    environment = {"LORAD_HANG_SECONDS": "1", "LORAD_RETRY_SECONDS": "0.2"}  # 15 s to open it
    with Daemon(home, environment=environment) as daemon:
        script = {"suffers": "hang", "suffers_at": 0, "suffers_times": 9, "steps": 2}
        run = ended(daemon, begun(daemon, "engine-opening", **script), 90)
        assert (run["status"], run["engine"]["engine"]) == ("completed", "torch_cpu")
        [demotion] = demotions(daemon)
    assert (demotion["phase"], demotion["step"]) == ("opening", None)
    assert "while qnn (form table) was opened" in demotion["cause"]


def test_a_kill_from_outside_demotes_nothing(strict: Daemon) -> None:
    run_id = begun(strict, "engine-killed", suffers="SIGKILL", suffers_at=8)
    run = ended(strict, run_id)
    assert (run["status"], run["engine"]["engine"]) == ("completed", "qnn")
    assert demotions(strict) == []
    assert "run-killed" in kinds(strict, run_id)


def test_a_worker_that_does_not_stop_when_asked_demotes_nothing(strict: Daemon) -> None:
    run_id = begun(strict, "engine-deaf", deaf=True, steps=400, step_seconds=0.05)
    strict.wait_for(run_id, lambda run: run["step"] >= 6)
    assert (strict.home / "engine/in-use.json").exists()
    assert strict.steer(run_id, "cancel").status_code == 202
    assert ended(strict, run_id)["status"] == "cancelled"
    assert not (strict.home / "engine/in-use.json").exists()
    assert demotions(strict) == []
