"""`lorad doctor`: the face of `python -m npu.doctor`, which a stand-in plays in most of these."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.engine_files import Demotion, EngineFiles
from tests.service.daemon import ROOT, holding
from tests.service.test_cli import lorad

CHECK = {"name": "qnn (form table)", "engine": "qnn", "form": "table", "passed": False}
CHECK |= {"cause": "the library libQnnHtp.so is missing", "remedy": "install onnxruntime-qnn anew"}
CHECK |= {"again": False, "seconds": 1.25, "device": None, "soc": None}
FINE = {"name": "torch_cpu", "engine": "torch_cpu", "form": "codes", "passed": True}
FINE |= {"cause": None, "remedy": None, "again": False, "seconds": 0.5, "device": "cpu"}
SAID: dict[str, Any] = {
    "fingerprint": "sha256:a",
    "at": "2026-11-30T04:00:00Z",
    "checks": [CHECK, FINE],
    "engine": "torch_cpu",
    "form": "codes",
    "why": "qnn can't be used: the library libQnnHtp.so is missing",
    "cached": True,
}


class StandIn:
    """A package `npu` that is found before ours, and notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (folder / "npu").mkdir()
        (folder / "npu/__init__.py").touch()

    def says(self, output: str, code: int) -> None:
        program = f"import json, pathlib, sys\npathlib.Path({str(self.folder / 'called')!r})"
        program += f".write_text(json.dumps(sys.argv[1:]))\nprint({output!r})\nsys.exit({code})\n"
        (self.folder / "npu/doctor.py").write_text(program)

    def lorad(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": f"{self.folder}:{ROOT}", "COLUMNS": "200"} | environment
        return lorad("doctor", *arguments, home=self.home, **environment)

    def called(self) -> list[str]:
        called: list[str] = json.loads((self.folder / "called").read_text())
        return called


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


def test_every_check_its_cause_its_remedy_and_the_engine_are_told(stand_in: StandIn) -> None:
    stand_in.says(json.dumps(SAID | {"note": "something beside"}), 1)
    answer = stand_in.lorad()
    assert (answer.returncode, answer.stderr) == (1, "")
    for words in (
        "qnn (form table) │ failed │ 1.2",
        str(CHECK["cause"]),
        str(CHECK["remedy"]),
        "torch_cpu        │ passed",
        "engine: torch_cpu, form codes: qnn can't be used: the library libQnnHtp.so is missing",
        "tested: 2026-11-30T04:00:00Z (lorad doctor --again tests anew)",
        "something beside",
    ):
        assert words in answer.stdout, answer.stdout
    assert "given up" not in answer.stdout


def test_all_well_is_0_and_json_is_all_of_it(stand_in: StandIn) -> None:
    stand_in.says(json.dumps(SAID | {"cached": False}), 0)
    answer = stand_in.lorad("--json")
    assert answer.returncode == 0
    assert json.loads(answer.stdout) == SAID | {"cached": False, "demotions": []}
    assert "tests anew" not in stand_in.lorad().stdout


def test_the_demotions_of_this_device_are_told(stand_in: StandIn) -> None:
    stand_in.says(json.dumps(SAID), 1)
    stand_in.home.mkdir(mode=0o700)
    files = EngineFiles(stand_in.home / "engine")
    for fingerprint, cause in (("sha256:a", "SIGSEGV at step 12"), ("sha256:b", "of another")):
        files.demote(Demotion(engine="qnn", fingerprint=fingerprint, cause=cause, at="then"))
    answer = stand_in.lorad()
    assert "given up: qnn, then: SIGSEGV at step 12\n" in answer.stdout
    assert "of another" not in answer.stdout
    [told] = json.loads(stand_in.lorad("--json").stdout)["demotions"]
    assert told["cause"] == "SIGSEGV at step 12"


def test_the_settings_and_options_reach_it(stand_in: StandIn) -> None:
    stand_in.says(json.dumps(SAID), 0)
    stand_in.lorad("--again", LORAD_ENGINE="qnn", LORAD_SOC="SM8750")
    home = ["--home", str(stand_in.home)]
    assert stand_in.called() == [
        *home,
        *("--engine", "qnn", "--json", "--soc", "SM8750", "--again"),
    ]
    stand_in.lorad("--engine", "onnx_cpu", LORAD_ENGINE="qnn")
    assert stand_in.called() == [*home, "--engine", "onnx_cpu", "--json"]
    assert stand_in.lorad("--engine", "steam").returncode == 2


def test_npu_means_the_npu_whatever_is_set(stand_in: StandIn) -> None:
    stand_in.says(json.dumps(SAID), 1)
    stand_in.lorad("--npu", LORAD_ENGINE="torch_cpu")
    assert stand_in.called() == ["--home", str(stand_in.home), "--engine", "qnn", "--json"]
    assert stand_in.lorad("--npu", "--engine", "torch_cpu").returncode == 2


def test_every_way_to_the_libraries_is_told_with_its_cause_and_remedy(stand_in: StandIn) -> None:
    path = {"name": "libraries, vendor", "loader": ["/q", "/vendor/lib64"], "dsp": ["/q"]}
    failed = {"path": path, "passed": False, "seconds": 2.0}
    failed |= {"cause": "the DSP did not load the skel", "remedy": "mode 0644"}
    passed = failed | {"path": path | {"name": "vendor, libraries"}, "passed": True}
    passed |= {"cause": None, "remedy": None}
    stand_in.says(json.dumps(SAID | {"trials": [failed, passed], "library_path": path}), 0)
    told = stand_in.lorad("--npu").stdout
    assert "libraries, vendor       │ failed │ 2.0     │ the DSP did not load the skel" in told
    assert "mode 0644" in told
    assert "vendor, libraries       │ passed" in told


@pytest.mark.parametrize("named", [True, False])
def test_the_doctor_is_told_where_the_libraries_are(stand_in: StandIn, named: bool) -> None:
    program = "import json, os\nprint(json.dumps({'environment': dict(os.environ)}))\n"
    (stand_in.folder / "npu/doctor.py").write_text(program)
    folder = stand_in.folder / "libraries" if named else stand_in.home / "qnn"
    folder.mkdir(parents=True)
    given = {"LORAD_QNN_LIBRARIES": str(folder)} if named else {}
    told = json.loads(stand_in.lorad("--json", **given).stdout)["environment"]
    assert told["LORAD_QNN_LIBRARIES"] == str(folder)
    assert "LORAD_OWN_LIBRARY_PATHS" not in told


@pytest.mark.parametrize("output", ["", "Traceback", "[]"])
def test_a_doctor_that_says_nothing_is_a_failure(stand_in: StandIn, output: str) -> None:
    stand_in.says(output, -11)
    answer = stand_in.lorad()
    assert answer.returncode == 1
    assert "python -m npu.doctor ended with" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_nothing_is_tested_beside_a_worker(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with holding(home / "worker.lock"):
        answer = lorad("doctor", home=home)
        assert answer.returncode == 1
        assert "nothing was tested" in answer.stdout


@pytest.mark.slow
def test_the_real_doctor_needs_no_daemon_and_remembers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = lorad("doctor", home=home)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "engine: torch_cpu, form codes:" in first.stdout
    again = json.loads(lorad("doctor", "--json", home=home).stdout)
    assert again["cached"]
    assert EngineFiles(home / "engine").verdict() is not None
