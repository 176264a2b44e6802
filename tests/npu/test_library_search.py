"""The search for a way to the user's libraries, with real children that crash, hang and lie.

In the place of the self-test is a program that does what the test says for the LD_LIBRARY_PATH it
was started with; the real one is in tests/service/test_npu_libraries.py.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import npu.fingerprint
from npu import doctor
from npu.demotions import read_demotions
from npu.engine_guard import AnotherLibraryPath, EngineGuard
from npu.engine_options import EngineOptions
from npu.fingerprint import fingerprint
from npu.library_path import OWN_VARIABLE, library_paths
from npu.verdict import read_verdict

Patch = pytest.MonkeyPatch

SELF_TEST = """
import json, os, resource, signal, sys, time
from pathlib import Path

said = dict(zip(sys.argv, sys.argv[1:]))
engine, form = said["--engine"], said["--form"]
libraries = os.environ["LORAD_QNN_LIBRARIES"]
way = os.environ.get("LD_LIBRARY_PATH", "").replace(libraries, "L")
with (Path(libraries).parent / "asked").open("a") as file:
    keys = ("LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "LORAD_HOME")
    file.write(json.dumps([engine, form, {key: os.environ.get(key) for key in keys}]) + "\\n")
report = {"passed": True, "cause": None, "cases": [], "form": form, "device": "an NPU"}
if engine != "qnn":
    report["form"] = "codes"
    print(json.dumps(report))
    sys.exit(0)
what = json.loads((Path(libraries).parent / "script.json").read_text()).get(f"{form} {way}", "pass")
if what == "hang":
    time.sleep(600)
if what.startswith("SIG"):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.Signals[what])
if what == "wrong numbers":
    report |= {"passed": False, "cases": [{"format": "int8", "direction": "forward"}]}
elif what != "pass":
    print(what, file=sys.stderr)
    report |= {"passed": False, "cause": "onnxruntime could not open a graph: it fell to the CPU"}
print(json.dumps(report))
"""

VENDOR, SYSTEM = "inputs L:/vendor/lib64", "inputs L:/system/lib64:/vendor/lib64"
WAYS = ("inputs L", VENDOR, SYSTEM, "inputs /vendor/lib64:L")
SKEL = (
    "QnnDsp <E> Failed to load skel, error: 4000\\nQnnDsp <E> Transport layer setup failed: 14001"
)


class Phone:
    """A folder of libraries, and what becomes of a self-test with each way to them."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.libraries = folder / "qnn"
        self._script, self._asked = folder / "script.json", folder / "asked"
        self._system = folder / "bin"
        self.home.mkdir()
        self.libraries.mkdir()
        (self.libraries / "libQnnHtp.so").write_bytes(b"QNN")
        self._system.mkdir()
        self.script({})

    def script(self, ends: dict[str, str]) -> None:
        """By form and way; what isn't named passes."""
        self._script.write_text(json.dumps(ends))
        self._asked.unlink(missing_ok=True)

    def asked(self) -> list[tuple[str, str, dict[str, str | None]]]:
        """The self-tests since then."""
        if not self._asked.exists():
            return []
        return [tuple(json.loads(line)) for line in self._asked.read_text().splitlines()]

    def ways(self) -> list[str]:
        """The ways of those on the NPU, with their forms."""
        found = [
            (form, env["LD_LIBRARY_PATH"] or "")
            for engine, form, env in self.asked()
            if engine == "qnn"
        ]
        return [f"{form} {way}".replace(str(self.libraries), "L") for form, way in found]

    def program(self, name: str, script: str) -> None:
        """A program of the system, on PATH."""
        file = self._system / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self._system}:{os.environ['PATH']}"


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: Patch) -> Phone:
    phone = Phone(tmp_path)
    (tmp_path / "program/npu").mkdir(parents=True)
    (tmp_path / "program/npu/with_parent.py").write_text(SELF_TEST)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "program"))
    monkeypatch.chdir(tmp_path / "program")
    monkeypatch.setenv("PATH", phone.path)
    monkeypatch.setenv("LORAD_QNN_LIBRARIES", str(phone.libraries))
    for name in ("LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "DSP_LIBRARY_PATH", OWN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("npu.qnn_libraries.has_package", lambda: False)
    return phone


Say = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def say(phone: Phone, capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        asked = ["--home", str(phone.home), "--engine", "qnn", "--json", *arguments]
        code = doctor.main(asked)
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, said

    return run


def test_each_way_gets_its_own_sentence_and_the_first_that_passes_is_kept(
    phone: Phone, say: Say, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own/lib")
    monkeypatch.setenv("LORAD_HOME", "/somewhere")
    before = dict(os.environ)
    own = ":/own/lib"
    phone.script({f"inputs L{own}": SKEL, f"{VENDOR}{own}": "SIGSEGV"})
    code, said = say()
    assert (code, said["engine"], said["form"]) == (0, "qnn", "table")
    assert phone.ways() == [*(f"{way}{own}" for way in WAYS[:3]), f"table{SYSTEM[6:]}{own}"]
    for engine, _, child in phone.asked():
        libraries = str(phone.libraries) if engine == "qnn" else None
        assert child["ADSP_LIBRARY_PATH"] == libraries
        assert child["LORAD_HOME"] is None
    assert phone.asked()[-1][2]["LD_LIBRARY_PATH"] == "/own/lib", "torch_cpu is tested as ever"
    skel, crash, fine = said["trials"]
    assert "the DSP did not load its half of QNN, the skel (4000)" in skel["cause"]
    assert "0644" in skel["remedy"]
    assert "SIGSEGV" in crash["cause"]
    assert (fine["passed"], fine["cause"], fine["remedy"]) == (True, None, None)
    kept = read_verdict(phone.home / "engine", fingerprint())
    assert kept is not None
    assert kept.library_path == library_paths(phone.libraries)[2]
    assert dict(os.environ) == before, "the environment of this process is not touched"
    assert say()[1]["cached"] is True
    phone.script({})
    assert say("--again")[1]["library_path"]["name"] == "libraries"
    assert phone.ways() == ["inputs L:/own/lib", "table L:/own/lib"]


def test_wrong_numbers_are_told_apart_and_never_used(phone: Phone, say: Say) -> None:
    phone.script(dict.fromkeys(WAYS, "wrong numbers"))
    code, said = say()
    assert (code, said["engine"], said["library_path"]) == (1, "torch_cpu", None)
    for trial in said["trials"]:
        assert "computes wrong numbers: the self-test failed for int8 forward" in trial["cause"]
        assert "nothing was trained with them" in trial["remedy"]
    assert phone.ways() == list(WAYS), "another form is not tried when no way works"


def test_a_hang_costs_its_time_limit_and_no_more(phone: Phone, say: Say) -> None:
    phone.script({"inputs L": "hang"})
    began = time.monotonic()
    code, said = say("--seconds", "4")
    assert time.monotonic() - began < 60
    assert "did not end within" in said["trials"][0]["cause"]
    assert (code, said["library_path"]["name"]) == (0, "libraries, vendor")


def test_of_failures_the_one_that_came_farthest_is_told(phone: Phone, say: Say) -> None:
    lacks = "QNN SetupBackend failed Unable to load backend, error: dlopen failed: library "
    lacks += '"libcdsprpc.so" not found'
    phone.script({**dict.fromkeys(WAYS, lacks), SYSTEM: SKEL})
    code, said = say()
    assert code == 1
    assert "libcdsprpc.so, through which" in said["trials"][0]["cause"]
    assert "the skel (4000)" in said["why"]


def test_another_form_alone_may_fail(phone: Phone, say: Say) -> None:
    phone.script({"table L": "SIGABRT"})
    code, said = say()
    assert (code, said["engine"], said["form"]) == (0, "qnn", "inputs")
    assert phone.ways() == ["inputs L", "table L"]


def test_an_update_of_the_phone_or_of_a_library_is_tested_anew(phone: Phone, say: Say) -> None:
    build = phone.home / "build"
    build.write_text("vendor/phone:16/A1/1:user/release-keys")
    phone.program("getprop", f'[ "$1" = ro.build.fingerprint ] && cat {build}')
    assert say()[1]["cached"] is False
    assert say()[1]["cached"] is True
    build.write_text("vendor/phone:16/A2/2:user/release-keys")
    phone.script({"inputs L": "SIGSEGV"})
    code, said = say()
    assert (code, said["cached"], said["library_path"]["name"]) == (0, False, "libraries, vendor")
    library = phone.libraries / "libQnnHtp.so"
    library.write_bytes(b"another QNN")
    phone.script({})
    assert say()[1]["library_path"]["name"] == "libraries"
    identity = fingerprint()
    stamp = library.stat()
    library.write_bytes(b"another qnn")  # of the same size
    assert fingerprint() != identity
    library.write_bytes(b"another QNN")
    os.utime(library, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert fingerprint() == identity, "its content counts, not its time"


def test_a_getprop_that_hangs_keeps_nobody_waiting(phone: Phone, monkeypatch: Patch) -> None:
    left = phone.home / "left"
    phone.program("getprop", f"sleep 600 & echo $! > {left}.new; mv {left}.new {left}; wait")
    monkeypatch.setattr(npu.fingerprint, "_GETPROP_SECONDS", 3.0)
    without = fingerprint()
    state = Path(f"/proc/{left.read_text().strip()}/stat")
    deadline = time.monotonic() + 30
    while state.exists() and " Z " not in state.read_text():
        assert time.monotonic() < deadline, "what it had started lives on"
        time.sleep(0.02)
    phone.program("getprop", "exit 1")
    assert fingerprint() == without


def test_androids_log_tells_the_cause(phone: Phone, say: Say) -> None:
    """FastRPC writes there and nowhere else; the lines are those of the child."""
    phone.script(dict.fromkeys(WAYS, "nothing that is known"))
    line = "E/adsprpc (1): fastrpc_apps_user.c:3592: Error 0xd: open_shell failed for domain 3"
    phone.program(
        "logcat",
        f'echo "$@" >> {phone.home}/logcat; echo "{line} (errno Permission denied)"',
    )
    said = say()[1]
    assert "may not start the DSP's shell" in said["why"], said
    [asked, *_] = (phone.home / "logcat").read_text().splitlines()
    assert asked.startswith("-d -v brief --pid=")
    assert int(asked.rpartition("=")[2]) != os.getpid()


def test_a_worker_started_without_the_way_asks_for_another_start(
    phone: Phone, monkeypatch: Patch
) -> None:
    phone.script({"inputs L": "SIGSEGV"})
    folder = phone.home / "engine"
    with pytest.raises(AnotherLibraryPath):
        EngineGuard(folder, 7).choose("qnn", EngineOptions())
    assert not (folder / "in-use.json").exists()
    assert phone.ways() == ["inputs L", VENDOR, f"table{VENDOR[6:]}"]
    with pytest.raises(AnotherLibraryPath):  # and the next one, if it is started so again
        EngineGuard(folder, 8).choose("qnn", EngineOptions())
    kept = read_verdict(folder, fingerprint())
    assert kept is not None
    assert kept.library_path is not None
    assert {check.form for check in kept.checks} == {"table", "inputs"}
    for name, value in kept.library_path.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    phone.script({})
    choice = EngineGuard(folder, 9).choose("qnn", EngineOptions())
    assert (choice.engine, choice.refused, phone.asked()) == ("qnn", None, [])
    # After an update it is tested anew, and its children inherit nothing of the old way.
    (phone.libraries / "libQnnHtp.so").write_bytes(b"another QNN")
    phone.script({"inputs L": "SIGSEGV"})
    assert EngineGuard(folder, 10).choose("qnn", EngineOptions()).engine == "qnn"
    assert phone.ways() == ["inputs L", VENDOR, f"table{VENDOR[6:]}"]


def test_what_needs_no_way_is_started_with_none(phone: Phone, say: Say, monkeypatch: Patch) -> None:
    """From a process that was itself started with one, as a worker is."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own/lib")
    path = library_paths(phone.libraries)[3]
    for name, value in path.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    phone.program("getprop", f'echo "$LD_LIBRARY_PATH" >> {phone.home}/getprop')
    assert say()[0] == 0
    engine, _, child = phone.asked()[-1]
    assert (engine, child["LD_LIBRARY_PATH"]) == ("torch_cpu", "/own/lib")
    assert child["ADSP_LIBRARY_PATH"] is None
    assert set((phone.home / "getprop").read_text().splitlines()) == {"/own/lib"}
    assert phone.ways() == ["inputs L:/own/lib", "table L:/own/lib"]


def test_a_way_that_can_not_be_kept_is_not_looked_for_for_ever(phone: Phone) -> None:
    folder = phone.home / "engine"
    folder.write_text("a file is in the way")
    choice = EngineGuard(folder, 7).choose("qnn", EngineOptions())
    assert (choice.engine, choice.refused) == (
        "torch_cpu",
        "the way to the NPU's libraries can't be kept on the disk",
    )


def test_no_way_at_all_is_given_up_once(phone: Phone) -> None:
    phone.script(dict.fromkeys(WAYS, SKEL))
    folder = phone.home / "engine"
    choice = EngineGuard(folder, 7).choose("qnn", EngineOptions())
    assert choice.engine == "torch_cpu"
    assert "the skel (4000)" in (choice.refused or "")
    (demotion,) = read_demotions(folder)
    assert "the skel (4000)" in demotion.cause
    phone.script({})
    assert EngineGuard(folder, 8).choose("qnn", EngineOptions()).engine == "torch_cpu"
    assert phone.asked() == []


def test_the_home_folder_is_looked_in_where_no_other_is_named(
    phone: Phone, say: Say, monkeypatch: Patch
) -> None:
    monkeypatch.delenv("LORAD_QNN_LIBRARIES")
    phone.libraries.rename(phone.home / "qnn")
    (phone.home / "script.json").write_text("{}")
    assert say()[1]["library_path"]["loader"] == [str(phone.home / "qnn")]
    monkeypatch.delenv("LORAD_QNN_LIBRARIES")  # what the doctor's own process has set
