"""The user's Qualcomm libraries: the children that compute are started with the way to them."""

import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.library_path import LibraryPath as NpuLibraryPath
from npu.library_path import library_paths
from service.engine_files import LibraryPath
from service.home import Home
from service.library_path import computing_environment, with_path
from service.settings import Settings
from tests.npu.like_a_phone import like_a_phone
from tests.service.daemon import Daemon, add_stand_in_model, add_tiny_model
from tests.service.test_real_engine import examples

OURS = ("LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "DSP_LIBRARY_PATH", "LORAD_OWN_LIBRARY_PATHS")


def environment_of(pid: int) -> dict[str, str]:
    """What the process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return {name: value for name, _, value in (entry.partition("=") for entry in entries if entry)}


def keep(home: Path, folder: Path) -> None:
    """The doctor's verdict with a way to the libraries."""
    path = {"name": "libraries, vendor", "loader": [str(folder), "/vendor/lib64"]}
    path |= {"dsp": [str(folder)]}
    said = {"fingerprint": "sha256:a", "checks": [], "engine": "qnn", "form": "table", "why": "it"}
    (home / "engine").mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "engine/doctor.json").write_text(json.dumps(said | {"library_path": path}))


PATHS = st.none() | st.sampled_from(["", "/own/lib", "/own/lib:/other", "/libs", "/a;/b", ":"])


@given(ld=PATHS, adsp=PATHS, dsp=PATHS, way=st.integers(0, 3), before=st.none() | st.integers(0, 3))
def test_both_sides_mean_the_same_by_a_way(
    ld: str | None, adsp: str | None, dsp: str | None, way: int, before: int | None
) -> None:
    """The worker looks whether it was started as `npu/` would have; nothing of another stays."""
    values = {"LD_LIBRARY_PATH": ld, "ADSP_LIBRARY_PATH": adsp, "DSP_LIBRARY_PATH": dsp}
    own = {"HOME": "/h", **{name: value for name, value in values.items() if value is not None}}
    ways = library_paths(Path("/libs"))
    path = ways[way]
    base = own if before is None else ways[before].environment(own)
    made = path.environment(base)
    kept = LibraryPath(name=path.name, loader=path.loader, dsp=path.dsp)
    assert made == own | with_path(kept, own)
    assert path.is_that_of(made)
    assert path == NpuLibraryPath.from_json(json.loads(json.dumps(path.to_json())))
    assert not any(other.is_that_of(made) for other in ways if other != path)
    folders = made["LD_LIBRARY_PATH"].split(":")
    assert folders[: len(path.loader)] == list(path.loader)
    assert set(folders[len(path.loader) :]) == set((ld or "").split(":")) - {"", *path.loader}


def test_worker_and_predictor_get_the_way_and_the_daemon_does_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    add_stand_in_model(home)
    folder = home / "qnn"
    folder.mkdir()
    keep(home, folder)
    with Daemon(home, environment={"LD_LIBRARY_PATH": "/own/lib"}, forked=False) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        asked = daemon.http.post(daemon.path("/predict"), json={"input": "now"})
        assert asked.status_code == 200, asked.text
        predictor = environment_of(daemon.worker_pid())
        daemon.script(steps=1000, step_seconds=0.05)
        run = daemon.train()
        daemon.wait_for(run, lambda run: bool(run["losses"]))
        worker = environment_of(daemon.worker_pid())
        for child in (predictor, worker):
            assert child["LD_LIBRARY_PATH"] == f"{folder}:/vendor/lib64:/own/lib"
            assert child["ADSP_LIBRARY_PATH"] == str(folder)
            assert child["LORAD_QNN_LIBRARIES"] == str(folder)
            assert "DSP_LIBRARY_PATH" not in child
        daemons = environment_of(daemon.process.pid)
        assert [daemons.get(name) for name in OURS] == ["/own/lib", None, None, None]
        os.kill(daemon.worker_pid(), signal.SIGKILL)


@pytest.mark.parametrize("damage", ["absent", "no path", "of another folder", "nonsense"])
def test_without_a_way_to_this_folder_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    home = Home.at(tmp_path / "home")
    home.create()
    (tmp_path / "libraries").mkdir()
    settings = Settings(home=home.path, qnn_libraries=str(tmp_path / "libraries"))
    keep(home.path, tmp_path / ("other" if damage == "of another folder" else "libraries"))
    file = home.engine / "doctor.json"
    if damage == "absent":
        file.unlink()
    elif damage == "no path":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"library_path": None}))
    elif damage == "nonsense":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"library_path": {"name": 3}}))
    environment = computing_environment(settings, home)
    assert environment == os.environ | {"LORAD_QNN_LIBRARIES": str(tmp_path / "libraries")}


@pytest.mark.slow
@pytest.mark.emulator
def test_the_first_start_finds_the_way_and_the_next_trains_with_it(tmp_path: Path) -> None:
    """The real provider, from the folder; the first way fails in the real loader."""
    home = tmp_path / "home"
    add_tiny_model(home)
    phone = like_a_phone(tmp_path / "phone")
    libraries, vendor = phone["LORAD_QNN_LIBRARIES"], phone["STANDS_FOR_VENDOR"]
    environment = phone | {"LORAD_ENGINE": "qnn", "LORAD_FORM": "inputs"}
    environment |= {"LORAD_RETRY_SECONDS": "0.2", "LD_LIBRARY_PATH": "/own/lib"}
    own = {"worker": "trainer.worker", "environment": environment, "forked": False}
    with Daemon(home, **own) as daemon:
        daemon.create_adapter(training={"steps": 10_000, "batch_size": 2})
        daemon.http.post(daemon.path("/examples"), json={"examples": examples(3)})
        run_id = daemon.train()
        run = daemon.wait_for(run_id, lambda run: bool(run["losses"]), seconds=120)
        assert run["engine"]["products"]["qnn"]["forward"] > 0
        assert run["engine"]["fallbacks"] == []
        worker = environment_of(daemon.worker_pid())
        assert worker["LD_LIBRARY_PATH"] == f"{libraries}:{vendor}:/own/lib"
        assert worker["ADSP_LIBRARY_PATH"] == libraries
        maps = Path(f"/proc/{daemon.worker_pid()}/maps").read_text()
        assert f"{libraries}/libonnxruntime_providers_qnn.so" in maps
        assert f"{libraries}/libQnnHtp.so" in maps
        assert environment_of(daemon.process.pid)["LD_LIBRARY_PATH"] == "/own/lib"
        kept = json.loads((home / "engine/doctor.json").read_text())
        assert kept["library_path"]["loader"] == [libraries, vendor]
        failed, passed = kept["trials"]
        assert (failed["passed"], passed["passed"]) == (False, True)
        assert failed["cause"].startswith("the library libc++"), failed
        kinds = [row["kind"] for row in daemon.http.get("/v1/history").json()["entries"]]
        assert "run-crashed" not in kinds
        os.kill(daemon.worker_pid(), signal.SIGKILL)
