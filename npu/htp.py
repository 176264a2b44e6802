"""Which Hexagon tensor processor (HTP) there is: a Snapdragon's, Qualcomm's emulator, or none."""

from __future__ import annotations

import ctypes.util
import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path

_ARM64 = frozenset({"aarch64", "arm64"})
_FASTRPC_LIBRARIES = (
    "vendor/lib64/libcdsprpc.so",
    "system/vendor/lib64/libcdsprpc.so",
    "usr/lib/libcdsprpc.so",
    "usr/lib/aarch64-linux-gnu/libcdsprpc.so",
)
_FASTRPC_DEVICES = ("fastrpc-cdsp*", "adsprpc-smd*")


@dataclass(frozen=True)
class Soc:
    """A Snapdragon as QNN numbers it: its model and the version of its HTP."""

    part: str
    name: str
    soc_model: int
    htp_arch: int


SOCS: tuple[Soc, ...] = (
    Soc("SM8550", "Snapdragon 8 Gen 2", 43, 73),
    Soc("SM8650", "Snapdragon 8 Gen 3", 57, 75),
    Soc("SM8750", "Snapdragon 8 Elite", 69, 79),
    Soc("SM8850", "Snapdragon 8 Elite Gen 5", 87, 81),
)
"""From ExecuTorch's public qc_schema.py."""

EMULATED_SOC = SOCS[1]
"""What the x86 emulator imitates; its results are the same for all of SOCS."""


def soc_of_part(part: str) -> Soc:
    """The Snapdragon of that part number, as SM8650. Raises ValueError for one that isn't known."""
    for soc in SOCS:
        if soc.part == part:
            return soc
    raise ValueError(
        f"expected a Snapdragon of {', '.join(soc.part for soc in SOCS)}, found {part!r}: "
        "choose one of them, or none for the device's own"
    )


@dataclass(frozen=True)
class Snapdragon:
    """Whether this machine has an NPU we can reach, and the reason, in words."""

    found: bool
    reason: str


def is_emulator(machine: str | None = None) -> bool:
    """Whether QNN's HTP library on this kind of machine is the emulator."""
    return (machine or platform.machine()) not in _ARM64


def find_snapdragon(*, machine: str | None = None, root: Path = Path("/")) -> Snapdragon:
    """Look for a real NPU: 64-bit ARM, onnxruntime-qnn, and FastRPC's library and device.

    `machine` and `root` stand for platform.machine() and the file system in tests.
    """
    machine = machine or platform.machine()
    if is_emulator(machine):
        return Snapdragon(False, f"this machine is {machine}, not a phone's ARM")
    if importlib.util.find_spec("onnxruntime_qnn") is None:
        return Snapdragon(False, "onnxruntime-qnn is not installed")
    if not any((root / path).exists() for path in _FASTRPC_LIBRARIES) and not (
        root == Path("/") and ctypes.util.find_library("cdsprpc")
    ):
        return Snapdragon(False, "FastRPC's library libcdsprpc.so is not here")
    if not any(any((root / "dev").glob(pattern)) for pattern in _FASTRPC_DEVICES):
        return Snapdragon(False, "no FastRPC device under /dev leads to an NPU")
    return Snapdragon(True, f"a Snapdragon NPU was found ({soc_name(root=root)})")


def soc_name(*, root: Path = Path("/")) -> str:
    """The phone's own name for its SoC, with the marketing name where we know it."""
    try:
        part = (root / "sys/devices/soc0/machine").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return "unknown SoC"
    known = next((soc for soc in SOCS if soc.part == part), None)
    return f"{part}, {known.name}" if known else part
