"""The doctor: self-tests in real children that crash, hang and lie, and what it makes of them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu import doctor
from npu.demotions import Demotion, add_demotion, read_demotions
from npu.doctor import examine
from npu.fingerprint import fingerprint
from npu.verdict import Check, judge, read_verdict, write_verdict
from tests.npu.faults import environment

Patch = pytest.MonkeyPatch
Say = Callable[..., tuple[int, dict[str, Any]]]


def inject(monkeypatch: Patch, **fault: Any) -> None:
    for name, value in environment(**fault).items():
        monkeypatch.setenv(name, value)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run the doctor on a home in this process, and read its JSON."""

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = doctor.main(["--home", str(tmp_path), "--json", *arguments])
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, said

    return run


@pytest.fixture
def examined(monkeypatch: Patch) -> list[tuple[str, str]]:
    """No child: every engine passes; the list is of what was asked for."""
    asked: list[tuple[str, str]] = []

    def pass_all(engine: Any, form: str, **_: Any) -> Check:
        asked.append((engine, form))
        return Check(engine, form, True, seconds=1.0)

    monkeypatch.setattr(doctor, "examine", pass_all)
    return asked


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause", "remedy"),
    [
        (
            {"at": "import", "do": "ImportError", "says": "No module named 'onnxruntime_qnn'"},
            "the Python package onnxruntime_qnn is not installed",
            "pip",
        ),
        (
            {
                "at": "register",
                "do": "RuntimeError",
                "says": "dlopen: libcdsprpc.so: cannot open shared object file: No such file",
            },
            r"the library libcdsprpc\.so, through which a Snapdragon's NPU is reached",
            "phone's own system",
        ),
        ({"at": "register", "do": "SIGSEGV"}, "ended by SIGSEGV", "an update"),
        (
            {"at": "run", "do": "wrong numbers"},
            "computes wrong numbers: the self-test failed for fp16 forward",
            "nothing was trained with them",
        ),
    ],
)
def test_each_failure_has_a_cause_and_a_remedy(
    monkeypatch: Patch, fault: dict[str, Any], cause: str, remedy: str
) -> None:
    inject(monkeypatch, **fault)
    before = children()
    check = examine("qnn", "inputs")
    assert not check.passed
    assert re.search(cause, check.cause or ""), check
    assert re.search(remedy, check.remedy or ""), check
    assert check.settled, "it will be no better next time"
    assert children() == before, "no zombie"


@pytest.mark.emulator
def test_a_hang_ends_at_the_time_limit(monkeypatch: Patch) -> None:
    inject(monkeypatch, at="import", do="hang")
    before = children()
    began = time.monotonic()
    check = examine("qnn", "inputs", seconds=1.0)
    assert time.monotonic() - began < 30
    assert not check.passed
    assert re.search(r"did not end within \d+ s", check.cause or "")
    assert check.settled
    assert children() == before


def test_a_test_that_is_not_wanted_any_more_is_ended() -> None:
    before = children()
    with pytest.raises(doctor.Interrupted):
        examine("torch_cpu", "codes", stop=lambda: True)
    assert children() == before


def test_the_child_gets_nothing_of_ours(tmp_path: Path, monkeypatch: Patch) -> None:
    """Its own session, no input, no descriptor, no setting; a stand-in self-test tells."""
    (tmp_path / "npu").mkdir()
    (tmp_path / "npu/with_parent.py").write_text(
        "import json, os\n"
        "open_files = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')\n"
        "              if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "print(json.dumps({'passed': False, 'cause': repr((os.getsid(0) == os.getpid(),\n"
        "    sorted(k for k in os.environ if k.startswith('LORAD')), os.read(0, 1),\n"
        "    [f for f in open_files if f.startswith('/') and not f.startswith('/dev/null')]))}))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LORAD_HOME", "/somewhere")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        check = examine("torch_cpu", "codes")
    assert "(True, [], b'', [])" in (check.cause or "")


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """A worker killed while it waits leaves nobody behind who holds torch."""
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'npu.with_parent', str(os.getpid()),\n"
        "    'tests.npu.sleeper'], start_new_session=True, stdout=subprocess.PIPE)\n"
        "assert child.stdout.readline() == b'asleep\\n'\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert parent.stdout is not None
    child = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    assert child.exists()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while child.exists() and " Z " not in child.read_text():
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)


@pytest.mark.slow
def test_the_command_on_a_machine_that_is_no_phone(tmp_path: Path) -> None:
    """A real child; no failure, and the emulator isn't run unless asked for."""
    asked = [sys.executable, "-m", "npu.doctor", "--home", str(tmp_path)]
    first = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
    assert first.returncode == 0, first.stderr
    assert re.search(r"^torch_cpu: passed on cpu in", first.stdout, re.M)
    assert "no Snapdragon NPU to use here" in first.stdout
    assert "qnn (form" not in first.stdout
    assert "emulator is not tested unless asked for with `--engine qnn`" in first.stdout
    folder = tmp_path / "engine"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()] == [
        ("doctor.json", 0o600)
    ]


def test_the_verdict_is_kept_and_made_anew_when_asked(
    say: Say, examined: list[tuple[str, str]], tmp_path: Path
) -> None:
    everything = [("qnn", "table"), ("qnn", "inputs"), ("torch_cpu", "codes")]
    code, said = say("--engine", "qnn")
    assert (code, said["engine"], said["form"], said["cached"]) == (0, "qnn", "table", False)
    assert examined == everything
    assert say("--engine", "qnn")[1]["cached"] is True
    assert examined == everything, "not tested twice"
    assert say("--engine", "qnn", "--again")[1]["cached"] is False
    assert examined == 2 * everything
    assert say("--engine", "auto")[1]["engine"] == "torch_cpu"
    assert examined == 2 * everything, "the same verdict knows torch_cpu"
    kept = read_verdict(tmp_path / "engine", fingerprint())
    assert kept is not None
    assert [check.name for check in kept.checks] == [
        "qnn (form table)",
        "qnn (form inputs)",
        "torch_cpu",
    ]


def test_another_device_is_tested_anew(
    say: Say, examined: list[tuple[str, str]], monkeypatch: Patch
) -> None:
    say()
    monkeypatch.setattr(doctor, "fingerprint", lambda soc: "sha256:after-an-update")
    assert say()[1]["cached"] is False
    assert len(examined) == 2


def test_what_was_given_up_is_lifted_by_a_test_that_passes(
    say: Say, examined: list[tuple[str, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "engine"
    add_demotion(folder, Demotion("qnn", fingerprint(), "SIGSEGV at step 3"))
    add_demotion(folder, Demotion("qnn", "sha256:another", "SIGBUS"))
    code, said = say("--engine", "qnn")
    assert (code, said["engine"], said["form"]) == (1, "torch_cpu", "codes")
    assert "SIGSEGV at step 3" in said["why"]
    assert "lorad doctor --again" in said["why"]
    code, said = say("--engine", "qnn", "--again")
    assert (code, said["engine"]) == (0, "qnn")
    assert [demotion.fingerprint for demotion in read_demotions(folder)] == ["sha256:another"]


def test_a_test_that_fails_lifts_nothing(say: Say, tmp_path: Path, monkeypatch: Patch) -> None:
    def fail_qnn(engine: Any, form: str, **_: Any) -> Check:
        return Check(engine, form, engine != "qnn", f"{form} is broken", "none")

    monkeypatch.setattr(doctor, "examine", fail_qnn)
    folder = tmp_path / "engine"
    add_demotion(folder, Demotion("qnn", fingerprint(), "SIGSEGV"))
    code, said = say("--engine", "qnn", "--again")
    assert (code, said["engine"], said["why"]) == (
        1,
        "torch_cpu",
        "qnn can't be used: table is broken",
    )
    assert len(read_demotions(folder)) == 1


def test_a_cpu_that_cannot_train_is_no_success(say: Say, monkeypatch: Patch) -> None:
    def fail(engine: Any, form: str, **_: Any) -> Check:
        return Check(engine, form, False, "the Python package torch is not installed", "pip")

    monkeypatch.setattr(doctor, "examine", fail)
    code, said = say()
    assert (code, said["engine"]) == (1, "torch_cpu")
    assert said["why"] == "torch_cpu can't be used: the Python package torch is not installed"


def test_while_a_worker_holds_torch_it_says_who_and_what_is_known(
    say: Say, examined: list[tuple[str, str]], tmp_path: Path
) -> None:
    with (tmp_path / "worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = say()
        assert code == 3
        assert f"process {os.getpid()}" in said["note"]
        assert "engine" not in said
        old = [Check("torch_cpu", "codes", True)]
        write_verdict(tmp_path / "engine", judge(fingerprint(), "torch_cpu", "a laptop", old))
        code, said = say("--again")
        assert (code, said["engine"], said["cached"]) == (3, "torch_cpu", True)
        assert "nothing was tested" in said["note"]
        assert say()[0] == 0, "what is known needs no test"
    assert examined == []
    assert say("--again")[0] == 0
    assert examined == [("torch_cpu", "codes")]


def test_a_failure_that_may_pass_is_not_held_against_the_engine(
    say: Say, monkeypatch: Patch
) -> None:
    passes = False

    def full_disk(engine: Any, form: str, **_: Any) -> Check:
        return Check(engine, form, passes, "the disk is full", "free some space", again=True)

    monkeypatch.setattr(doctor, "examine", full_disk)
    assert say("--engine", "qnn")[0] == 1
    passes = True
    code, said = say("--engine", "qnn")
    assert (code, said["cached"], said["engine"]) == (0, False, "qnn")


def test_no_home_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--home", str(tmp_path / "none")]) == 2
    assert "found none" in capsys.readouterr().err
