"""What `lorad report` tells of a device, so that others can learn from it.

Everything in it is a number, or a word out of a list that is known here: no name of an app, an
adapter, a model or a person, no text, no label, no serial number, no path, no time of day.
"""

import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, get_args

from service import device
from service.engine_files import Demotion, EngineFiles, Verdict
from service.gates.verdict import GATES
from service.home import Home
from service.models import ModelFolder
from service.settings import EngineName, FormName, SocPart
from storage.experience import Experience
from storage.ledgers import Night
from storage.tables import Run, RunStatus, Version
from storage.tables import Verdict as VersionVerdict

REPORT_VERSION = 1

_LIBRARIES = ("torch", "onnxruntime", "onnxruntime-qnn", "tokenizers", "numpy")
_ENGINES = {*get_args(EngineName), "inputs", "table"}
_FORMS = {*get_args(FormName), "codes"}
_SOCS = {*get_args(SocPart)} - {""}
_FORMATS = {"fp16", "int8", "int4", "int4_min", "native", "auto"}
_MACHINES = {"aarch64", "arm64", "armv7l", "armv8l", "x86_64", "i686", "riscv64"}
_PRODUCTS = {"forward", "again", "input_gradient"}
_KIND = re.compile(r"[a-z]+(-[a-z]+){0,4}")
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")
_KERNEL = re.compile(r"\d{1,3}(\.\d{1,4}){1,3}(-android\d{1,2}(-\d{1,3})?)?")
_GIB = 1024**3
_ANDROID_SECONDS = 5.0


def device_report(home: Home, found: Experience, speed: dict[str, float] | None) -> dict[str, Any]:
    """The report as JSON-able values.

    ``speed`` is what the daemon has counted since it began: tokens and seconds of its steps.
    """
    files = EngineFiles(home.engine)
    verdict = files.verdict()
    return {
        "report_version": REPORT_VERSION,
        "month": f"{datetime.now(UTC):%Y-%m}",
        "lorad": _version(metadata.version("lorad")),
        "python": platform.python_version(),
        "libraries": _libraries(),
        "device": _device(verdict),
        "engine": _engine(verdict, files.demotions()),
        "models": _models(home),
        "speed": None if speed is None else _speed(speed),
        "runs": {status: found.runs.get(status, 0) for status in get_args(RunStatus)},
        "trainings": [_training(version, run) for version, run in found.versions],
        "nights": [_night(night) for night in found.nights],
        "gates_closed": {gate: found.gates_closed.get(gate, 0) for gate in GATES},
        "happened": {
            kind: count for kind, count in sorted(found.happened.items()) if _KIND.fullmatch(kind)
        },
    }


def _libraries() -> dict[str, str | None]:
    found: dict[str, str | None] = {"sqlite": sqlite3.sqlite_version}
    for name in _LIBRARIES:
        try:
            found[name] = _version(metadata.version(name))
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _device(verdict: Verdict | None) -> dict[str, Any]:
    memory = device.memory().total_bytes
    kernel = _KERNEL.match(os.uname().release)  # platform.release() is Android's on Android
    socs = {check.soc for check in verdict.checks} if verdict is not None else set()
    return {
        "soc": next((soc for soc in sorted(_SOCS) if soc in socs), None)
        or _android("ro.soc.model"),
        "machine": _word(platform.machine(), _MACHINES),
        "cores": os.cpu_count(),
        "memory_gib": None if memory is None else round(memory / _GIB, 1),
        "kernel": None if kernel is None else kernel[0],
        "android": _android("ro.build.version.release"),
        "android_api": _android("ro.build.version.sdk"),
    }


def _android(name: str) -> str | None:
    """A property of Android's that is a version or the model of its SoC; None elsewhere."""
    try:
        child = subprocess.run(
            ["getprop", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANDROID_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = child.stdout.strip()
    return said if _VERSION.fullmatch(said) or said in _SOCS else None


def _engine(verdict: Verdict | None, demotions: Collection[Demotion]) -> dict[str, Any]:
    return {
        "verdict": None
        if verdict is None
        else {"engine": _word(verdict.engine, _ENGINES), "form": _word(verdict.form, _FORMS)},
        "tests": [
            {
                "engine": _word(check.engine, _ENGINES),
                "form": _word(check.form, _FORMS),
                "passed": check.passed,
                "seconds": check.seconds,
            }
            for check in (verdict.checks if verdict is not None else ())
        ],
        "given_up": [_word(one.engine, _ENGINES) for one in demotions],
    }


def _models(home: Home) -> list[dict[str, Any]]:
    return [
        {
            "parameters": model.parameters,
            "layers": model.config.num_hidden_layers,
            "format": _word(model.format, _FORMATS),
            "bytes_per_parameter": model.info().bytes_per_parameter,
        }
        for model in ModelFolder(home.models).every()
    ]


def _speed(counted: dict[str, float]) -> dict[str, float | None]:
    seconds, steps = counted["seconds"], counted["steps"]
    return {
        "steps": steps,
        "tokens_per_second": _ratio(counted["tokens"], seconds),
        "seconds_per_step": _ratio(seconds, steps),
    }


def _training(version: Version, run: Run) -> dict[str, Any]:
    manifest, report = version.manifest, _object(version.manifest.get("engine"))
    steps, seconds = _positive(manifest.get("steps")), _positive(manifest.get("seconds"))
    rows = _object(report.get("rows"))
    return {
        "engine": _word(report.get("engine"), _ENGINES),
        "form": _word(report.get("form"), _FORMS),
        "threads": _positive(report.get("threads")),
        "rank": _positive(manifest.get("rank")),
        "top_layers": _positive(manifest.get("top_layers")),
        "steps": steps,
        "seconds": seconds,
        "seconds_per_step": None if steps is None or seconds is None else _ratio(seconds, steps),
        "products": _by_engine(report.get("products")),
        "product_seconds": _by_engine(report.get("seconds")),
        "product_rows": _positive(rows.get("given")),
        "fallbacks": _count(report.get("fallbacks")),
        "engine_switches": _count(manifest.get("engine_switches")),
        "resumed": run.resumed_from is not None,
        "exact_resume": run.exact_resume,
        "train": _positive(version.metrics.get("train")),
        "holdout": _positive(version.metrics.get("holdout")),
        "verdict": _word(version.verdict, get_args(VersionVerdict)),
    }


def _night(night: Night) -> dict[str, float | None]:
    hours = None
    if night.closed_at is not None:
        hours = round((night.closed_at - night.opened_at) / 3_600_000, 1)
    return {
        "hours": hours,
        "first_level": night.first_level,
        "last_level": night.last_level,
        "hottest_celsius": night.hottest,
    }


def _by_engine(value: Any) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for engine, products in _object(value).items():
        if engine in _ENGINES:
            found[engine] = {
                name: round(number, 3)
                for name, number in _object(products).items()
                if name in _PRODUCTS and _is_number(number)
            }
    return found


def _count(value: Any) -> int:
    if not isinstance(value, list):
        return 0
    counts = [one.get("count", 1) if isinstance(one, dict) else 1 for one in value]
    return sum(count for count in counts if isinstance(count, int))


def _word(value: Any, known: Collection[str]) -> str | None:
    """The word if it is a known one; ``other`` if there is another."""
    if value is None:
        return None
    return value if value in known else "other"


def _version(text: str) -> str | None:
    found = _VERSION.match(text)
    return None if found is None else found[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(value: Any) -> float | None:
    return value if _is_number(value) and value >= 0 else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _ratio(above: float, below: float) -> float | None:
    return round(above / below, 4) if below else None
