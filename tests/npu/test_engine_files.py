"""The files of HOME/engine: whole or absent, nobody else's, and never a reason not to train."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import npu.fingerprint
from npu.demotions import (
    Demotion,
    add_demotion,
    find_demotion,
    lift_demotions,
    read_demotions,
)
from npu.engine_mark import EngineMark, read_mark, remove_mark, write_mark
from npu.fingerprint import fingerprint
from npu.json_file import write_json_file
from npu.lock_holder import lock_holder
from npu.verdict import Check, judge, merged, read_verdict, write_verdict

MARK = EngineMark("qnn", "table", "opening", 7, 123, "sha256:1", 2)
NAMES = ("in-use.json", "demotions.json", "doctor.json")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=6,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    write_mark(folder, MARK)
    assert read_mark(folder) == MARK
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "in-use.json").stat().st_mode) == 0o600
    assert json.loads((folder / "in-use.json").read_text()) == {
        "engine": "qnn",
        "form": "table",
        "phase": "opening",
        "run": 7,
        "pid": 123,
        "fingerprint": "sha256:1",
        "unexplained": 2,
    }
    remove_mark(folder)
    remove_mark(folder)
    assert read_mark(folder) is None
    assert list(folder.iterdir()) == []


def test_demotions_are_added_found_and_lifted(tmp_path: Path) -> None:
    demotions = [
        Demotion("qnn", "sha256:1", "SIGSEGV", "training", 7, 12, "2026-11-30T04:00:00Z"),
        Demotion("qnn", "sha256:2", "SIGBUS"),
        Demotion("qnn", "sha256:1", "a hang"),
    ]
    for demotion in demotions:
        add_demotion(tmp_path, demotion)
    assert read_demotions(tmp_path) == demotions
    found = find_demotion(tmp_path, "qnn", "sha256:1")
    assert found is not None
    assert found.cause == "a hang", "the latest"
    assert find_demotion(tmp_path, "onnx_cpu", "sha256:1") is None
    assert lift_demotions(tmp_path, "sha256:1") == 2
    assert lift_demotions(tmp_path, "sha256:1") == 0
    assert read_demotions(tmp_path) == demotions[1:2]


def test_one_bad_demotion_hides_no_other(tmp_path: Path) -> None:
    good = {"engine": "qnn", "fingerprint": "sha256:1", "cause": "SIGSEGV", "later": "field"}
    write_json_file(tmp_path / "demotions.json", {"demotions": [3, {"engine": "qnn"}, good]})
    assert [demotion.cause for demotion in read_demotions(tmp_path)] == ["SIGSEGV"]


def test_a_verdict_is_of_one_fingerprint(tmp_path: Path) -> None:
    checks = [
        Check("qnn", "table", False, "SIGSEGV", "none", False, 3.0, None, None),
        Check("qnn", "inputs", True, device="a phone", soc="SM8650"),
    ]
    verdict = judge("sha256:1", "qnn", "a Snapdragon", checks)
    assert (verdict.engine, verdict.form, verdict.why) == ("qnn", "inputs", "a Snapdragon")
    write_verdict(tmp_path, verdict)
    assert read_verdict(tmp_path, "sha256:1") == verdict
    assert read_verdict(tmp_path, "sha256:2") is None
    assert verdict.check("qnn", "table") == checks[0]
    assert verdict.check("onnx_cpu", "inputs") is None
    again = [Check("qnn", "table", True)]
    assert merged(verdict, again) == [again[0], checks[1]]
    written = json.loads((tmp_path / "doctor.json").read_text())
    assert written["checks"][0]["name"] == "qnn (form table)"


def test_no_engine_that_failed_is_the_verdict() -> None:
    checks = [Check("qnn", "table", False, "it crashed"), Check("torch_cpu", "codes", True)]
    verdict = judge("sha256:1", "qnn", "a Snapdragon", checks)
    assert (verdict.engine, verdict.form) == ("torch_cpu", "codes")
    assert verdict.why == "qnn can't be used: it crashed"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(content=st.binary(max_size=40) | json_values.map(lambda v: json.dumps(v).encode()))
def test_a_damaged_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(content)
    read_mark(tmp_path)
    read_demotions(tmp_path)
    read_verdict(tmp_path, "sha256:1")
    add_demotion(tmp_path, Demotion("qnn", "sha256:1", "SIGSEGV"))
    assert find_demotion(tmp_path, "qnn", "sha256:1") is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(field=st.sampled_from([*MARK.__dict__]), value=json_values)
def test_a_mark_with_a_strange_field_is_none_or_whole(
    tmp_path: Path, field: str, value: Any
) -> None:
    write_json_file(tmp_path / "in-use.json", MARK.__dict__ | {field: value})
    mark = read_mark(tmp_path)
    assert mark is None or type(mark.unexplained + mark.run + mark.pid) is int


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_its_place_says_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert read_mark(tmp_path) is None
    assert read_demotions(tmp_path) == []
    assert read_verdict(tmp_path, "sha256:1") is None


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mark(tmp_path, MARK)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        add_demotion(tmp_path, Demotion("qnn", "sha256:1", "SIGSEGV"))
    assert [path.name for path in tmp_path.iterdir()] == ["in-use.json"]


def test_the_fingerprint_follows_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    here = fingerprint()
    assert here == fingerprint()
    assert here.startswith("sha256:")
    assert len(here) == 7 + 64
    assert fingerprint("SM8650") != here
    seen = {here}
    monkeypatch.setattr(npu.fingerprint.platform, "machine", lambda: "another")
    seen.add(fingerprint())
    for release, version in (("6.1", "#1 SMP"), ("7.0", "#1 SMP"), ("7.0", "#2 SMP")):
        kernel = SimpleNamespace(release=release, version=version)
        monkeypatch.setattr(npu.fingerprint.os, "uname", lambda kernel=kernel: kernel)
        seen.add(fingerprint())
    monkeypatch.setattr(npu.fingerprint, "soc_name", lambda: "SM9999")
    seen.add(fingerprint())
    monkeypatch.setattr(npu.fingerprint, "_version", lambda distribution: "9.9")
    seen.add(fingerprint())
    monkeypatch.setattr(npu.fingerprint, "_android_build", lambda: "google/husky:14")
    seen.add(fingerprint())
    assert len(seen) == 8


def test_a_phones_build_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    getprop = tmp_path / "getprop"
    getprop.write_text('#!/bin/sh\n[ "$1" = ro.build.fingerprint ] && echo google/husky:14\n')
    getprop.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert npu.fingerprint._android_build() == "google/husky:14"
    assert fingerprint() != before


def test_they_load_nothing_that_computes() -> None:
    """The worker uses them before its engine's child may hold torch."""
    program = (
        "import sys, npu.doctor, npu.engine_guard, trainer.spec, trainer.worker\n"
        "print([m for m in ('torch', 'numpy', 'onnxruntime') if m in sys.modules])\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"[]\n"


def test_who_holds_a_lock_where_the_system_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert lock_holder(tmp_path / "lock") == "another process"
    assert lock_holder(tmp_path / "lock", locks=tmp_path / "none") == "another process"
    assert lock_holder(tmp_path / "none") == "another process"
