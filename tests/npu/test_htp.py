"""Telling a phone from a laptop, with made-up file systems."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path

import pytest

from npu.htp import SOCS, find_snapdragon, is_emulator, soc_name


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root folder that looks like a Snapdragon 8 Gen 3 with onnxruntime-qnn installed."""
    for file in ("vendor/lib64/libcdsprpc.so", "dev/fastrpc-cdsp"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    (tmp_path / "sys/devices/soc0").mkdir(parents=True)
    (tmp_path / "sys/devices/soc0/machine").write_text("SM8650\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return tmp_path


def test_a_phone_is_found_by_name(phone: Path) -> None:
    found = find_snapdragon(machine="aarch64", root=phone)
    assert found.found
    assert "SM8650, Snapdragon 8 Gen 3" in found.reason


def test_an_older_driver_counts_too(phone: Path) -> None:
    (phone / "dev/fastrpc-cdsp").rename(phone / "dev/adsprpc-smd")
    assert find_snapdragon(machine="aarch64", root=phone).found


def test_each_missing_part_is_the_reason(phone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "x86_64" in find_snapdragon(machine="x86_64", root=phone).reason
    (phone / "dev/fastrpc-cdsp").unlink()
    assert "FastRPC device" in find_snapdragon(machine="aarch64", root=phone).reason
    (phone / "vendor/lib64/libcdsprpc.so").unlink()
    assert "libcdsprpc.so" in find_snapdragon(machine="aarch64", root=phone).reason
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing = find_snapdragon(machine="aarch64", root=phone)
    assert "onnxruntime-qnn" in missing.reason
    assert not missing.found


def test_an_unknown_soc_keeps_its_own_name(phone: Path) -> None:
    (phone / "sys/devices/soc0/machine").write_text("SM9999")
    assert soc_name(root=phone) == "SM9999"
    (phone / "sys/devices/soc0/machine").unlink()
    assert soc_name(root=phone) == "unknown SoC"


def test_this_machine_has_no_snapdragon_unless_it_is_arm() -> None:
    assert is_emulator() == (platform.machine() not in {"aarch64", "arm64"})
    if is_emulator():
        assert not find_snapdragon().found


def test_socs_are_told_apart_by_every_number() -> None:
    for field in ("part", "soc_model", "htp_arch"):
        assert len({getattr(soc, field) for soc in SOCS}) == len(SOCS)
