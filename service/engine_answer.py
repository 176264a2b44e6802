"""The engine of the runs on this device, from the latest run, the doctor and the demotions.

the latest run's report, if it was asked for the same engine; the doctor's verdict if it is newer
    └─▶ an engine, its form, and why ── given up since then? ──▶ torch_cpu, and the cause
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from api_schemas.engine import Demotion as DemotionAnswer
from api_schemas.engine import Doctor, Engine, Precision, SelfTest
from service.engine_files import Demotion, Verdict
from service.settings import Settings
from service.views import instant
from storage.clock import now_ms
from storage.tables import Run

_PHONES = frozenset({"aarch64", "arm64"})
"""Elsewhere `auto` never means the NPU: there is only its emulator."""


@dataclass(frozen=True)
class _Used:
    """What runs use, as far as it is known."""

    name: str | None
    form: str | None
    why: str
    fallback: str | None = None
    device: str | None = None
    soc: str | None = None


def engine_answer(
    settings: Settings,
    *,
    latest: Run | None,
    own: Run | None,
    verdict: Verdict | None,
    demotions: Sequence[Demotion],
    may_see: Callable[[int], bool],
) -> Engine:
    """The answer for one caller.

    Args:
        settings: the daemon's.
        latest: the latest run that may be told from, with an engine's report; None: none.
        own: the same of the caller's own.
        verdict: the doctor's.
        demotions: all of them.
        may_see: whether the caller may see the run of this id.
    """
    report = {} if latest is None or latest.engine is None else latest.engine
    if report.get("requested", settings.engine) != settings.engine:
        report = {}  # of other settings: the runs from now on are others
    in_force = [
        one for one in demotions if verdict is None or one.fingerprint == verdict.fingerprint
    ]
    used = _given_up(_used(settings, report, latest, verdict), in_force)
    return Engine(
        requested=settings.engine,
        name=used.name,
        form=used.form,
        device=used.device,
        soc=used.soc or settings.soc or None,
        why=used.why,
        fallback=used.fallback,
        precision=_precision(report),
        demotions=[
            DemotionAnswer(
                engine=one.engine,
                cause=one.cause,
                phase=one.phase,
                step=one.step,
                run=one.run if one.run is not None and may_see(one.run) else None,
                at=_at(one.at),
                in_force=one in in_force,
            )
            for one in reversed(demotions)
        ],
        doctor=None if verdict is None else _doctor(verdict),
        run=None if own is None else own.id,
        report=None if own is None else own.engine,
    )


def _used(
    settings: Settings, report: dict[str, Any], latest: Run | None, verdict: Verdict | None
) -> _Used:
    """What the newest word of a run or of the doctor says, of engines that weren't given up."""
    asked, machine = settings.engine, platform.machine()
    may_be_npu = asked == "qnn" or (asked == "auto" and machine in _PHONES)
    told = isinstance(report.get("engine"), str)
    if verdict is not None and may_be_npu and not (told and _worked_since(latest, verdict)):
        return _of_verdict(verdict)
    if told:
        return _of_report(report)
    if asked != "auto":
        return _Used(asked, None, "asked for by name")
    if not may_be_npu:
        return _Used("torch_cpu", "codes", f"this machine is {machine}, not a phone's ARM")
    return _Used(None, None, "no run has opened an engine yet; `lorad doctor` tests what there is")


def _worked_since(latest: Run | None, verdict: Verdict) -> bool:
    """Whether the run has worked since the verdict; without a time the run's word counts more."""
    at, worked = _moment(verdict.at), None if latest is None else latest.worked_at
    return at is None or worked is None or worked >= _ms(at)


def _of_verdict(verdict: Verdict) -> _Used:
    check = next(
        (
            one
            for one in verdict.checks
            if one.passed and (one.engine, one.form) == (verdict.engine, verdict.form)
        ),
        None,
    )
    failed = next(
        (one.cause for one in verdict.checks if not one.passed and one.engine != verdict.engine),
        None,
    )
    return _Used(
        verdict.engine,
        verdict.form,
        verdict.why,
        fallback=failed,
        device=None if check is None else check.device,
        soc=None if check is None else check.soc,
    )


def _of_report(report: dict[str, Any]) -> _Used:
    soc = report.get("soc")
    return _Used(
        report["engine"],
        _text(report.get("form")),
        _text(report.get("why")) or "the run's report does not say why",
        fallback=_fallback(report),
        device=_text(report.get("device")),
        soc=_text(soc.get("part")) if isinstance(soc, dict) else _text(soc),
    )


def _fallback(report: dict[str, Any]) -> str | None:
    """Why products weren't computed where they were meant to be: the engine's or a product's."""
    given_up = report.get("given_up")
    if isinstance(given_up, dict) and (cause := _text(given_up.get("cause"))):
        return cause
    fallbacks = report.get("fallbacks")
    for one in fallbacks if isinstance(fallbacks, list) else []:
        if isinstance(one, dict) and (cause := _text(one.get("cause"))):
            return cause
    return None


def _given_up(used: _Used, in_force: Sequence[Demotion]) -> _Used:
    """What takes the place of an engine that was given up after what is known was said."""
    by_engine = {one.engine: one for one in in_force}
    demotion = by_engine.get(used.name or "qnn")
    if demotion is None:
        return used
    why = (
        f"{demotion.engine} was given up on this device: {demotion.cause}; "
        "`lorad doctor --again` tests it anew"
    )
    return _Used("torch_cpu", "codes", why, fallback=demotion.cause)


def _precision(report: dict[str, Any]) -> Precision | None:
    try:
        return Precision.model_validate(report["precision"])
    except (KeyError, ValidationError):  # of an earlier lorad
        return None


def _doctor(verdict: Verdict) -> Doctor:
    at = _moment(verdict.at)
    return Doctor(
        engine=verdict.engine,
        form=verdict.form,
        why=verdict.why,
        at=_at(verdict.at),
        age_seconds=None if at is None else round(max(0, now_ms() - _ms(at)) / 1000, 1),
        checks=[
            SelfTest(
                name=one.name,
                engine=one.engine,
                form=one.form,
                passed=one.passed,
                cause=one.cause,
                remedy=one.remedy,
            )
            for one in verdict.checks
        ],
    )


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)


def _at(text: str | None) -> str | None:
    moment = _moment(text)
    return None if moment is None else instant(moment)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
