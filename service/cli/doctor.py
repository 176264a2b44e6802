"""`lorad doctor`: which engine this device can train with, and if not, why."""

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from service.cli.options import HomeOption, JsonOption, settings_with
from service.cli.outcome import Exit, fail, print_json
from service.cli.terminal import print_table
from service.engine_files import EngineFiles
from service.home import Home
from service.library_path import doctor_environment
from service.settings import Settings


def doctor(
    again: Annotated[
        bool,
        typer.Option("--again", help="Test anew, and use what was given up again if it passes."),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(help="auto, qnn, onnx_cpu or torch_cpu. Default: $LORAD_ENGINE or auto."),
    ] = None,
    npu: Annotated[
        bool,
        typer.Option("--npu", help="Test the NPU, whatever LORAD_ENGINE says; as --engine qnn."),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Test the engines in processes of their own, and say which one runs will use, and why.

    The verdict holds until the system or a library changes. Where Qualcomm's libraries lie in a
    folder of yours, each way to look for them is tried, and the first that works is kept. Exit
    code 0: the engine that is meant for this device works; 1: it doesn't, or nothing could be
    tested. Needs no daemon.
    """
    if npu and engine not in (None, "qnn"):
        fail("--npu goes with no other --engine than qnn", Exit.USAGE)
    settings = settings_with(home=home, engine="qnn" if npu else engine)
    place = Home.at(settings.home)
    place.create()
    code, said = _ask(settings, place, again=again)
    said["demotions"] = _demotions(place, said.get("fingerprint"))
    if json_output:
        print_json(said)
    else:
        _print(said)
    if code != 0:
        raise typer.Exit(Exit.FAILED)


def _ask(settings: Settings, place: Home, *, again: bool) -> tuple[int, dict[str, Any]]:
    """What `npu.doctor` says in a process of its own, and its exit code."""
    module = "npu.doctor"
    arguments = ["--home", str(place.path), "--engine", settings.engine, "--json"]
    arguments += ["--soc", settings.soc] if settings.soc else []
    arguments += ["--again"] if again else []
    child = subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=doctor_environment(settings, place),
        check=False,
    )
    try:
        said = json.loads(child.stdout)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        fail(f"python -m {module} ended with {child.returncode} and no verdict")
    return child.returncode, said


def _demotions(place: Home, fingerprint: Any) -> list[dict[str, Any]]:
    """The engines that are given up on this device."""
    found = EngineFiles(place.engine).demotions()
    return [one.model_dump() for one in found if one.fingerprint == fingerprint]


def _print(said: dict[str, Any]) -> None:
    if trials := said.get("trials"):
        tried = [(trial["path"]["name"], *_outcome(trial)) for trial in trials]
        print_table(("libraries looked for in", "", "seconds", "cause", "remedy"), tried)
    if checks := said.get("checks"):
        rows = [(check["name"], *_outcome(check)) for check in checks]
        print_table(("self-test", "", "seconds", "cause", "remedy"), rows)
    if "engine" in said:
        typer.echo(f"engine: {said['engine']}, form {said['form']}: {said['why']}")
        typer.echo(f"tested: {said['at']}{' (lorad doctor --again tests anew)' * said['cached']}")
    for demotion in said["demotions"]:
        typer.echo(f"given up: {demotion['engine']}, {demotion['at']}: {demotion['cause']}")
    if "note" in said:
        typer.echo(said["note"])


def _outcome(test: dict[str, Any]) -> tuple[str, str, str, str]:
    """Of a check or of a trial of the libraries' path, for a table."""
    seconds, passed = f"{test['seconds']:.1f}", "passed" if test["passed"] else "failed"
    return passed, seconds, test["cause"] or "-", test["remedy"] or "-"
