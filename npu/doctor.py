"""`python -m npu.doctor --home HOME`: which engine this device can train with, and if not, why.

Each self-test runs in a process of its own with a time limit. The verdict is kept in the home's
`engine/doctor.json` and holds until the system or a library changes; `--again` tests anew, and
lifts what was given up on this device if it passes.

Exit codes: 0 the engine meant for this device works (`torch_cpu` on anything but a Snapdragon), 1
it doesn't, and `torch_cpu` takes its place, 2 no such home, 3 another process of this home holds
torch, so nothing was tested; what was known before is printed all the same.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from npu.demotions import find_demotion, lift_demotions
from npu.diagnosis import Diagnosis, diagnose
from npu.engine_choice import EngineName, RequestedEngine, choose_engine
from npu.engine_options import FormName
from npu.fingerprint import fingerprint
from npu.htp import SOCS, is_emulator
from npu.library_path import LibraryPath
from npu.library_search import LibrarySearch
from npu.lock_holder import lock_holder
from npu.qnn_libraries import LIBRARIES_VARIABLE, user_libraries
from npu.selftest_child import run_selftest_child
from npu.verdict import Check, Verdict, judge, merged, read_verdict, write_verdict

WORKS, FAILED, NO_HOME, LOCKED = 0, 1, 2, 3

SECONDS = 120.0
"""A self-test takes about 5 s on two slow cores; on the NPU itself nobody has measured it."""

NPU_FORMS: tuple[FormName, ...] = ("table", "inputs")
"""Of the engine on the NPU, the preferred one first."""

FORMS: dict[EngineName, tuple[str, ...]] = {
    "qnn": NPU_FORMS,
    "onnx_cpu": ("inputs",),
    "torch_cpu": ("codes",),
}
"""The forms of each engine, the preferred one first."""


class Interrupted(Exception):  # noqa: N818 - not an error: who waits for the test was asked to stop
    """The self-test was ended early because `stop` said so; nothing is known of the engine."""


def examine(
    engine: EngineName,
    form: str,
    *,
    seconds: float = SECONDS,
    soc: str | None = None,
    path: LibraryPath | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Check:
    """Test one engine and form in a child that looks so for the libraries. Raises Interrupted."""
    name = Check(engine, form, False).name
    asked_form = "auto" if form == "codes" else form
    try:
        end = run_selftest_child(engine, asked_form, seconds=seconds, soc=soc, path=path, stop=stop)
    except OSError as error:
        cause = f"the self-test of {name} can't be started: {error.strerror or error}"
        remedy = "free memory and disk space; `lorad doctor --again` tests it anew"
        return Check(engine, form, False, cause, remedy, again=True)
    if end.stopped:
        raise Interrupted
    report = end.report or {}
    found = diagnose(end, name) or _another_form(report, form)
    return Check(
        engine=engine,
        form=form,
        passed=found is None,
        cause=None if found is None else found.cause,
        remedy=None if found is None else found.remedy,
        again=found is not None and found.again,
        seconds=round(end.seconds, 2),
        device=report.get("device"),
        soc=report.get("soc"),
        loaded=found is None or found.loaded,
    )


def _another_form(report: dict[str, Any], form: str) -> Diagnosis | None:
    """Whether what passed isn't what was asked for."""
    if report.get("form") == form:
        return None
    why = report.get("form_why") or "it does not say why"
    return Diagnosis(
        f"it opens with the form {report.get('form')} instead: {why}",
        "none is needed, that form does",
    )


def answer(home: Path, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """The exit code and all that is to be said, as JSON-able values."""
    folder = home / "engine"
    identity = fingerprint(options.soc)
    meant, why = choose_engine(options.engine)
    known = read_verdict(folder, identity)
    cached = None
    if known is not None:
        cached = judge(
            identity,
            meant,
            why,
            known.checks,
            known.at,
            library_path=known.library_path,
            trials=known.trials,
        )
    if cached is not None and not options.again and _covers(cached, meant):
        return _answer(folder, cached, meant, cached=True)
    descriptor = os.open(home / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note = f"nothing was tested: {lock_holder(home / 'worker.lock')} holds torch in this home"
        said = {} if cached is None else _answer(folder, cached, meant, cached=True)[1]
        return LOCKED, said | {"note": f"{note}; ask again when it has ended"}
    try:
        wanted = dict.fromkeys([meant, "torch_cpu"])
        search = LibrarySearch.begin(
            user_libraries(),
            lambda engine, form, path: examine(
                engine, form, seconds=options.seconds, soc=options.soc, path=path
            ),
            None if options.again else known,
        )
        checks = [search.examine(engine, form) for engine in wanted for form in FORMS[engine]]
        path, trials = search.path, search.trials
        if meant != "qnn" and known is not None:  # what is known of the NPU stays
            path, trials = known.library_path, known.trials
        checks = merged(known, checks)
        verdict = judge(identity, meant, why, checks, library_path=path, trials=trials)
        try:
            write_verdict(folder, verdict)
            if options.again and verdict.engine == meant:
                lift_demotions(folder, identity)
        except OSError as error:
            code, said = _answer(folder, verdict, meant, cached=False)
            return code, said | {"note": f"the verdict can't be kept: {error.strerror or error}"}
        return _answer(folder, verdict, meant, cached=False)
    finally:
        os.close(descriptor)


def _covers(verdict: Verdict, meant: EngineName) -> bool:
    """Whether the verdict settles all that would be tested."""
    forms = [(meant, form) for form in FORMS[meant]]
    return all(verdict.check(engine, form) for engine, form in [*forms, ("torch_cpu", "codes")])


def _answer(
    folder: Path, verdict: Verdict, meant: EngineName, *, cached: bool
) -> tuple[int, dict[str, Any]]:
    said = verdict.to_json() | {"cached": cached}
    demotion = find_demotion(folder, meant, verdict.fingerprint)
    if demotion is not None and verdict.engine == meant:
        said |= {
            "engine": "torch_cpu",
            "form": "codes",
            "why": given_up(meant, demotion.cause),
        }
    if meant == "torch_cpu" and is_emulator():
        said["note"] = "the NPU's emulator is not tested unless asked for with `--engine qnn`"
    passed = any(check.passed for check in verdict.checks if check.engine == meant)
    return (WORKS if passed and said["engine"] == meant else FAILED), said


def given_up(engine: str, cause: str) -> str:
    """Why an engine that was given up on this device isn't opened."""
    return f"{engine} was given up on this device: {cause}; `lorad doctor --again` tests it anew"


def main(arguments: list[str] | None = None) -> int:
    """Print the verdict; see the top of this file for the exit codes."""
    parser = argparse.ArgumentParser(prog="python -m npu.doctor", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--engine", choices=get_args(RequestedEngine), default="auto")
    parser.add_argument("--soc", choices=[soc.part for soc in SOCS], help="compile for this one")
    parser.add_argument("--again", action="store_true", help="test, whatever is known already")
    parser.add_argument("--json", action="store_true", help="all of it, as JSON")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each self-test")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    if (options.home / "qnn").is_dir():
        os.environ.setdefault(LIBRARIES_VARIABLE, str((options.home / "qnn").absolute()))
    if not options.home.is_dir():
        print(f"expected a home at {options.home}, found none: start the daemon", file=sys.stderr)
        return NO_HOME
    code, said = answer(options.home, options)
    print(json.dumps(said, indent=2) if options.json else "\n".join(_lines(said)))
    return code


def _lines(said: dict[str, Any]) -> list[str]:
    lines = []
    for trial in said.get("trials", []):
        end = "passed" if trial["passed"] else f"{trial['cause']}. Remedy: {trial['remedy']}."
        lines.append(f"library path {trial['path']['name']}: {end}")
    for check in said.get("checks", []):
        if check["passed"]:
            where = f" on {check['device']}" if check["device"] else ""
            lines.append(f"{check['name']}: passed{where} in {check['seconds']:.1f} s")
        else:
            lines.append(f"{check['name']}: {check['cause']}. Remedy: {check['remedy']}.")
    if "engine" in said:
        age = f" (tested {said['at']})" if said["cached"] else ""
        lines.append(f"engine: {said['engine']}, form {said['form']}: {said['why']}{age}")
    return [*lines, said["note"]] if "note" in said else lines


if __name__ == "__main__":
    sys.exit(main())
