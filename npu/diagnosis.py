"""From the end of a self-test to one sentence on its cause and one on the remedy."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from npu.dsp_causes import KEEP_THE_CPU as _KEEP_THE_CPU
from npu.dsp_causes import dsp_cause
from npu.qnn_libraries import FETCH
from npu.selftest_child import SelfTestEnd

_TEST_AGAIN = "`lorad doctor --again` tests it anew"
_UPDATE = "take the versions of onnxruntime and onnxruntime-qnn that lorad's constraints.txt names"
_REPORT_IT = f"{_KEEP_THE_CPU}; after an update of the system or of onnxruntime-qnn {_TEST_AGAIN}"
_FREE_MEMORY = f"close other apps; {_TEST_AGAIN}"
_FREE_DISK = f"free some space on the disk; {_TEST_AGAIN}"

_MOST_QUOTED = 200

_LIBRARY_LINE = re.compile(
    r"(?:dlopen failed|Failed to load library|Unable to load backend|CANNOT LINK EXECUTABLE)"
    r"[^\n]*\.so[^\n]*"
)
"""A library that the loader could not have, as QNN and onnxruntime put it."""


@dataclass(frozen=True)
class Diagnosis:
    """Why an engine can't be used and what to do."""

    cause: str
    remedy: str
    again: bool = False
    """Whether the same test may end otherwise next time, with nothing changed."""
    loaded: bool = True
    """Whether the libraries were loaded at all, as far as that can be told."""


@dataclass(frozen=True)
class _Known:
    """A message of Python, the dynamic loader, onnxruntime or ours, and what it means."""

    pattern: str
    cause: str
    """With what the pattern's groups found; `{0}` is all of the message."""
    remedy: str
    again: bool = False
    loaded: bool = False


_KNOWN = (
    _Known(r"No space left on device|Disk quota exceeded", "the disk is full", _FREE_DISK, True),
    _Known(
        r"MemoryError|bad_alloc|Cannot allocate memory|MEM_ALLOC",
        "the memory ran out: {0}",
        _FREE_MEMORY,
        True,
        loaded=True,
    ),
    _Known(
        r"No module named '?onnxruntime_qnn",
        "the Python package onnxruntime_qnn is not installed",
        f"install it with pip, where there is a wheel for this system; on Android {FETCH}",
    ),
    _Known(
        r"No module named '?([\w.-]+)|^import of ([\w.-]+) halted",
        "the Python package {1} is not installed",
        f"install it with pip, where there is a wheel for this system; {_KEEP_THE_CPU}",
    ),
    _Known(
        r"(GLIBC(?:XX)?_[\d.]+)'? not found",
        "the system's C or C++ library is older than {1}, which onnxruntime-qnn needs",
        f"take a newer system, one with at least glibc 2.34; {_KEEP_THE_CPU}",
    ),
    _Known(
        r"\"([^\"]+\.so)\"[^\n]*is not accessible for the namespace",
        "the system does not show {1} to apps",
        f"another library path may lead to it, and `lorad doctor --npu` tries all; {_KEEP_THE_CPU}",
    ),
    _Known(
        r"couldn't map \"([^\"]+\.so)\"[^\n]*Permission denied",
        "the system does not let apps load {1}",
        f"take the library from `sh termux/fetch-qnn.sh`, if it is one of QNN's; {_KEEP_THE_CPU}",
    ),
    _Known(
        r"(libcdsprpc\.so[\w.]*)",
        "the library {1}, through which a Snapdragon's NPU is reached, can't be loaded",
        f"it comes with the phone's own system and must be visible here; {_KEEP_THE_CPU}",
    ),
    _Known(r"expected (lib\S+\.so) in \S+, found none", "the library {1} is missing", FETCH),
    _Known(
        r"([\w.+-]+\.so[\w.]*): cannot open shared object file|library \"([^\"]+)\" not found",
        "the library {1} is missing",
        "install the package that has it, or install onnxruntime-qnn anew",
    ),
    _Known(r"can't be loaded", "{0}", _UPDATE),
    _Known(r"can't be registered", "{0}", _UPDATE),
    _Known(
        r"expected a device of onnxruntime-qnn",
        "onnxruntime-qnn finds no NPU on this device",
        "of its Android library take a release after 2.4.0, which finds none from within an app "
        f"(onnxruntime-qnn's issue 679); {_KEEP_THE_CPU}",
    ),
    _Known(
        r"could not open|could not run|can't be made|[Ff]ailed to", "{0}", _REPORT_IT, loaded=True
    ),
)

_CRASHES = {
    signal.SIGSEGV: "it reached for memory that isn't its own",
    signal.SIGABRT: "a library gave up",
    signal.SIGBUS: "it reached for memory that isn't there",
    signal.SIGILL: "it holds an instruction that this processor doesn't know",
    signal.SIGFPE: "a calculation was not possible",
    signal.SIGTRAP: "a library stopped it",
    signal.SIGSYS: "the system does not allow it a call that it makes",
}


def diagnose(end: SelfTestEnd, engine: str) -> Diagnosis | None:
    """What the end of a self-test means; None: the engine passed.

    A whole report counts more than the way the process ended after it: what a library does when it
    is unloaded is no product.
    """
    if end.code is None:
        return Diagnosis(
            f"the self-test of {engine} was killed and does not end, since it waits in the kernel "
            "for a device",
            f"restart the phone; {_TEST_AGAIN}",
        )
    if end.timed_out:
        return Diagnosis(
            f"the self-test of {engine} did not end within {end.seconds:.0f} s",
            f"if the device was busy, `lorad doctor --again`; else {_KEEP_THE_CPU}",
        )
    if end.report is not None and (end.report["passed"] or end.report.get("cause") is None):
        return None if end.report["passed"] else _wrong_numbers(end.report, engine)
    if (found := _in_the_logs(end)) is not None:
        return found
    if end.report is not None:
        return _of_report(end.report, engine)
    if end.code == -signal.SIGKILL:
        return Diagnosis(
            f"the self-test of {engine} was killed by SIGKILL, as the system does when the memory "
            "runs out",
            _FREE_MEMORY,
            again=True,
        )
    if end.code < 0:
        return _of_signal(-end.code, engine)
    said = _last_line(end.stderr)
    known = _known(said)
    if known is not None:
        return known
    return Diagnosis(
        f"the self-test of {engine} ended with code {end.code} and no report: {said}", _REPORT_IT
    )


def _in_the_logs(end: SelfTestEnd) -> Diagnosis | None:
    """What the libraries said, which is nearer to the cause than what came of it."""
    said = "" if end.report is None else str(end.report.get("cause"))
    logs = f"{said}\n{end.stderr}\n{end.log}"
    if (cause := dsp_cause(logs)) is not None:
        return Diagnosis(*cause)
    lines = [*end.stderr.splitlines(), *end.log.splitlines()]
    for line in lines:
        if (found := _LIBRARY_LINE.search(line)) and (known := _known(found[0])):
            return known
    return None


def _of_report(report: dict[str, object], engine: str) -> Diagnosis:
    said = _quoted(str(report["cause"]))
    return _known(said) or Diagnosis(f"the self-test of {engine} failed: {said}", _REPORT_IT)


def _wrong_numbers(report: dict[str, object], engine: str) -> Diagnosis:
    return Diagnosis(
        f"{engine} computes wrong numbers: {_wrong_cases(report)}",
        f"nothing was trained with them, and {_REPORT_IT}",
    )


def _wrong_cases(report: dict[str, object]) -> str:
    cases = report.get("cases")
    failed = [
        f"{case.get('format')} {case.get('direction')}"
        for case in (cases if isinstance(cases, list) else [])
        if isinstance(case, dict) and not case.get("passed")
    ]
    return f"the self-test failed for {', '.join(failed) or 'a case it does not name'}"


def _of_signal(number: int, engine: str) -> Diagnosis:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    why = _CRASHES.get(signal.Signals(number)) if name.startswith("SIG") else None
    words = f"killed by {name}" if why is None else f"ended by {name}: {why}"
    return Diagnosis(f"the self-test of {engine} was {words}", _REPORT_IT, again=why is None)


def _known(message: str) -> Diagnosis | None:
    for known in _KNOWN:
        if found := re.search(known.pattern, message):
            named = [group for group in found.groups() if group is not None]
            cause = known.cause.format(message, *named)
            return Diagnosis(cause, known.remedy, known.again, known.loaded)
    return None


def _last_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return _quoted(lines[-1]) if lines else "it said nothing"


def _quoted(message: str) -> str:
    """On one line, not overlong, without the full stop that our own sentence gets."""
    return " ".join(message.split())[:_MOST_QUOTED].rstrip(". ")
