"""Which Hexagon tensor processor (HTP) there is: a Snapdragon's, Qualcomm's emulator, or none."""

from __future__ import annotations

import ctypes.util
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from npu.qnn_libraries import FETCH, has_package, user_libraries
from npu.system_program import program_output

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
    soc_ids: tuple[int, ...]
    """What Linux calls it and its faster variants."""


SOCS: tuple[Soc, ...] = (
    Soc("SM8550", "Snapdragon 8 Gen 2", 43, 73, (519, 536)),
    Soc("SM8650", "Snapdragon 8 Gen 3", 57, 75, (557, 577)),
    Soc("SM8750", "Snapdragon 8 Elite", 69, 79, (618,)),
    Soc("SM8850", "Snapdragon 8 Elite Gen 5", 87, 81, (660,)),
)
"""Numbers from ExecuTorch's public qc_schema.py; ids from Linux' dt-bindings/arm/qcom,ids.h."""

PARTS = ", ".join(soc.part for soc in SOCS)

EMULATED_SOC = SOCS[1]
"""What the x86 emulator imitates; its results are the same for all of SOCS."""

_UNKNOWN = "unknown SoC"
_PROPERTY_SECONDS = 2.0


def soc_of_part(part: str) -> Soc:
    """The Snapdragon of that part number, as SM8650. Raises ValueError for one that isn't known."""
    for soc in SOCS:
        if soc.part == part.strip().upper():
            return soc
    raise ValueError(
        f"expected a Snapdragon of {PARTS}, found {part!r}: "
        "choose one of them, or none for the device's own"
    )


@dataclass(frozen=True)
class DetectedSoc:
    """What a device says it is."""

    part: str
    """Its own words, as SM8650; "unknown SoC" if it doesn't say."""
    soc: Soc | None
    """Which of SOCS that is; None if it is another or doesn't say."""

    @property
    def name(self) -> str:
        """Its own words, with the marketing name where we know it."""
        return f"{self.part}, {self.soc.name}" if self.soc else self.part

    @property
    def remark(self) -> str | None:
        """What it means if we don't know it, in a sentence."""
        if self.soc is not None:
            return None
        is_it = "this SoC doesn't tell" if self.part == _UNKNOWN else f"{self.part} is none of them"
        return (
            f"made for {PARTS}, {is_it}: QNN's own detection is trusted, the self-test decides, "
            "and torch_cpu computes if it fails"
        )


def detect_soc(*, root: Path = Path("/")) -> DetectedSoc:
    """Ask Android's properties, then the kernel, which may hide it from apps; then it is unknown.

    `root` stands for the file system in tests.
    """
    found = list(_own_words(root))
    for words in found:
        for soc in SOCS:
            # Variants carry a suffix: SM8550P, SM8650-AC.
            if re.fullmatch(rf"{soc.part}(P|-[A-Z0-9]+)?", words) or words in map(str, soc.soc_ids):
                return DetectedSoc(soc.part, soc)
    return DetectedSoc(found[0] if found else _UNKNOWN, None)


def _own_words(root: Path) -> Iterator[str]:
    getprop = root / "system/bin/getprop"
    yield from _plain(program_output([getprop, "ro.soc.model"], _PROPERTY_SECONDS))
    for file in ("machine", "soc_id"):
        with suppress(OSError):
            content = (root / "sys/devices/soc0" / file).read_bytes()
            yield from _plain(content.decode("ascii", errors="replace"))


def _plain(content: str) -> Iterator[str]:
    """The one word of `content`, if it is one."""
    word = content.strip()
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", word):
        yield word


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

    Where the user's own libraries are there, and whole, the rest is left to the self-test: Android
    hides both from apps, and hands a device out through a service that can't be seen beforehand.
    `machine` and `root` stand for platform.machine() and the file system in tests.
    """
    machine = machine or platform.machine()
    if is_emulator(machine):
        return Snapdragon(False, f"this machine is {machine}, not a phone's ARM")
    libraries = user_libraries()
    if libraries is not None:
        if missing := libraries.missing():
            which = f"expected {', '.join(missing)} in {libraries.folder}, found none"
            return Snapdragon(False, f"{which}: {FETCH}")
        return _trusted(f"Qualcomm's libraries lie in {libraries.folder}", detect_soc(root=root))
    if not has_package():
        return Snapdragon(False, f"onnxruntime-qnn is not installed; on Android {FETCH}")
    if not any((root / path).exists() for path in _FASTRPC_LIBRARIES) and not (
        root == Path("/") and ctypes.util.find_library("cdsprpc")
    ):
        return Snapdragon(False, "FastRPC's library libcdsprpc.so is not here")
    if not any(any((root / "dev").glob(pattern)) for pattern in _FASTRPC_DEVICES):
        return Snapdragon(False, "no FastRPC device under /dev leads to an NPU")
    return _trusted("a Snapdragon NPU was found", detect_soc(root=root))


def _trusted(why: str, detected: DetectedSoc) -> Snapdragon:
    reason = f"{why} ({detected.name})"
    return Snapdragon(True, f"{reason}; {detected.remark}" if detected.remark else reason)


def soc_name(*, root: Path = Path("/")) -> str:
    """The phone's own name for its SoC, with the marketing name where we know it."""
    return detect_soc(root=root).name
