"""Telling a phone from a laptop, with made-up file systems."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path

import pytest

from npu.htp import SOCS, detect_soc, find_snapdragon, is_emulator, soc_name, soc_of_part


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


def test_the_users_own_libraries_count_where_no_package_is(
    phone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Android hides FastRPC's library and device from apps: the self-test decides."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (phone / "dev/fastrpc-cdsp").unlink()
    (phone / "vendor/lib64/libcdsprpc.so").unlink()
    folder = phone / "qnn"
    monkeypatch.setenv("LORAD_QNN_LIBRARIES", str(folder))
    absent = find_snapdragon(machine="aarch64", root=phone)
    assert (absent.found, "fetch-qnn.sh" in absent.reason) == (False, True)
    folder.mkdir()
    for name in ("libonnxruntime_providers_qnn.so", "libQnnHtp.so"):
        (folder / name).touch()
    without = find_snapdragon(machine="aarch64", root=phone)
    assert not without.found
    assert f"expected libQnnSystem.so in {folder}, found none" in without.reason
    (folder / "libQnnSystem.so").touch()
    found = find_snapdragon(machine="aarch64", root=phone)
    assert found.found
    assert found.reason == f"Qualcomm's libraries lie in {folder} (SM8650, Snapdragon 8 Gen 3)"
    assert not find_snapdragon(machine="x86_64", root=phone).found
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "libcdsprpc.so" in find_snapdragon(machine="aarch64", root=phone).reason


def tell(root: Path, **files: str) -> None:
    """Let the device say `getprop`, `machine` and `soc_id` and nothing else."""
    for file in ("machine", "soc_id"):
        (root / "sys/devices/soc0" / file).unlink(missing_ok=True)
        if file in files:
            (root / "sys/devices/soc0" / file).write_text(files[file])
    getprop = root / "system/bin/getprop"
    getprop.unlink(missing_ok=True)
    if "getprop" in files:
        getprop.parent.mkdir(parents=True, exist_ok=True)
        getprop.write_text(f'#!/bin/sh\n[ "$1" = ro.soc.model ] && {files["getprop"]}\n')
        getprop.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "part"),
    [
        ({"getprop": "echo SM8550", "machine": "KALAMA\n", "soc_id": "519\n"}, "SM8550"),
        ({"getprop": "echo SM8650-AC"}, "SM8650"),
        ({"getprop": "echo", "machine": "SM8550P\n"}, "SM8550"),
        ({"getprop": "exit 1", "machine": "SUN\n", "soc_id": "618\n"}, "SM8750"),
        ({"machine": "CANOE\n", "soc_id": "660\n"}, "SM8850"),
        ({"soc_id": "577\n"}, "SM8650"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_phone_is_known_by_whatever_it_tells(
    phone: Path, says: dict[str, str], part: str
) -> None:
    tell(phone, **says)
    detected = detect_soc(root=phone)
    assert detected.soc == soc_of_part(part)
    assert detected.part == part
    assert detected.remark is None


@pytest.mark.parametrize(
    ("says", "part"),
    [
        ({"machine": "SM9999", "soc_id": "999"}, "SM9999"),
        ({"getprop": "echo SM8475", "machine": "CAPE"}, "SM8475"),
        ({"machine": "SM86500"}, "SM86500"),
        ({"soc_id": "57"}, "57"),
        ({}, "unknown SoC"),
        ({"machine": "\xff\xfe not a name \n"}, "unknown SoC"),
        ({"getprop": "sleep 30"}, "unknown SoC"),
    ],
    ids=["newer", "older", "longer", "QNN's number", "hidden", "garbage", "hanging"],
)
def test_a_phone_we_do_not_know_keeps_its_own_name(
    phone: Path, says: dict[str, str], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npu.htp._PROPERTY_SECONDS", 0.2)
    tell(phone, **says)
    detected = detect_soc(root=phone)
    assert detected.soc is None
    assert detected.part == soc_name(root=phone) == part
    found = find_snapdragon(machine="aarch64", root=phone)
    assert found.found
    assert "QNN's own detection is trusted" in found.reason
    assert "torch_cpu computes if it fails" in found.reason


def test_a_part_is_chosen_by_name() -> None:
    assert [soc_of_part(soc.part) for soc in SOCS] == list(SOCS)
    assert soc_of_part(" sm8650 ") == SOCS[1]
    for wrong in ("SM8450", "57", "", "SM8650P"):
        with pytest.raises(ValueError, match="SM8550, SM8650, SM8750, SM8850, found"):
            soc_of_part(wrong)


def test_this_machine_has_no_snapdragon_unless_it_is_arm() -> None:
    assert is_emulator() == (platform.machine() not in {"aarch64", "arm64"})
    if is_emulator():
        assert not find_snapdragon().found


def test_socs_are_told_apart_by_every_number() -> None:
    for field in ("part", "soc_model", "htp_arch"):
        assert len({getattr(soc, field) for soc in SOCS}) == len(SOCS)
    ids = [number for soc in SOCS for number in soc.soc_ids]
    assert len(set(ids)) == len(ids)
