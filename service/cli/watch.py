"""`lorad watch`: a run as it goes on, with its loss, the time it will take, and the heat."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.client import get
from service.cli.connection import find, http_client
from service.cli.names import adapter_path, complete_adapter, parted, run_path
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import Exit, fail, print_json
from service.cli.run_events import run_events
from service.cli.terminal import console
from service.cli.version_words import measured
from service.home import Home

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_HEAT_SECONDS = 10.0
_LINES = 10
"""Without a terminal: how many lines tell of the steps of a run."""

_SOON_SECONDS = 2.0


def watch(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME|RUN",
            help="A run's number, or an adapter: its run under way or last one. An app's is "
            "client/name or client/number.",
            autocompletion=complete_adapter,
        ),
    ],
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Watch a run until it ends. Ctrl-C only ends the watching.

    Exit code 0: it is completed; 1: it failed or was cancelled; 130: Ctrl-C.
    """
    place = home_of(home)
    watch_run(place, parted(what)[0], _run_id(place, what), json_output=json_output)


def watch_run(home: Home, client: str | None, run_id: int, *, json_output: bool) -> None:
    """Watch this run until it ends, and end the command with its outcome.

    ``client`` is whose it is; None: the owner's.
    """
    run: dict[str, Any] = {}
    try:
        with Display(home, run_id, quiet=json_output) as display:
            for name, change in run_events(home, run_path(client, run_id, "/events")):
                run |= change
                display.show(name, run)
    except KeyboardInterrupt:
        typer.echo(
            f"\nNo longer watching; run {run_id} goes on. To look again: lorad watch "
            f"{'' if client is None else client + '/'}{run_id}",
            err=True,
        )
        raise typer.Exit(Exit.INTERRUPTED) from None
    if json_output:
        print_json(run)
    else:
        _tell_end(home, client, run)
    if run.get("status") != "completed":
        raise typer.Exit(Exit.FAILED)


class Display:
    """What is shown of a run: one living line on a terminal, else a few lines."""

    def __init__(self, home: Home, run_id: int, *, quiet: bool) -> None:
        """Begin with nothing shown; ``quiet`` shows nothing at all."""
        self._home = home
        self._run_id = run_id
        self._out = console(stderr=True, quiet=quiet)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said = ""
        self._tenth = -1
        self._heat = ""
        self._heat_at = float("-inf")
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> Display:
        """Show it."""
        if self._out.is_terminal and not self._out.quiet:
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[words]}"),
                console=self._out,
                expand=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(f"run {self._run_id}", total=None, words="")
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the last line standing."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, name: str, run: dict[str, Any]) -> None:
        """Show the run after this event."""
        if name == "snapshot" or run["status"] != "running":
            self._first = None  # what lies between isn't this run's pace
        self._measure(run)
        if not self._out.quiet:
            self._feel()
        state = run["status"] if run["status"] != "running" else run["phase"] or "starting"
        said = state + ("" if run["error"] is None else f": {run['error']}")
        if said != self._said and name != "end":
            self._said = said
            self._out.print(f"run {self._run_id}: {said}")
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                total=run["total_steps"],
                completed=run["step"],
                words=self._words(run),
            )
        elif run["total_steps"] and name != "end":
            tenth = _LINES * run["step"] // run["total_steps"]
            if tenth != self._tenth:
                self._tenth = tenth
                self._out.print(f"run {self._run_id}: {self._words(run)}")

    def _words(self, run: dict[str, Any]) -> str:
        parts = []
        if run["total_steps"]:
            parts.append(f"step {run['step']}/{run['total_steps']}")
        if run["loss"] is not None:
            parts.append(f"loss {run['loss']:.3f}")
        if run["evaluating_total"] and run["status"] == "running":
            parts.append(f"measured {run['evaluated'] or 0}/{run['evaluating_total']}")
        left = self._left(run)
        if left is not None:
            parts.append(f"{duration(left)} left")
        if self._heat:
            parts.append(self._heat)
        return "  ".join(parts)

    def _measure(self, run: dict[str, Any]) -> None:
        if self._first is None and run["status"] == "running" and run["step"]:
            self._first = (run["step"], time.monotonic())

    def _left(self, run: dict[str, Any]) -> float | None:
        """Seconds until the last step, by the steps that were watched."""
        if self._first is None or not run["total_steps"]:
            return None
        steps, seconds = int(run["step"]) - self._first[0], time.monotonic() - self._first[1]
        if steps < 1 or run["step"] >= run["total_steps"]:
            return None
        return seconds / steps * (int(run["total_steps"]) - int(run["step"]))

    def _feel(self) -> None:
        """The battery's temperature, now and then; a daemon that is away is no reason to end."""
        import httpx

        now = time.monotonic()
        if now - self._heat_at < _HEAT_SECONDS:
            return
        self._heat_at = now
        with suppress(OSError, ValueError, KeyError, TypeError, httpx.HTTPError):
            at = find(self._home)
            if at is None:
                return
            with http_client(self._home, at, _SOON_SECONDS) as http:
                value = http.get("/v1/device").json()["battery"]["temperature"]["value"]
            self._heat = "" if value is None else f"{value:.1f} °C"


def duration(seconds: float) -> str:
    """So many seconds as a person would say them: 45 s, 12 min, 1 h 30 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _run_id(home: Home, what: str) -> int:
    number = what.rpartition("/")[2]
    if number.isascii() and number.isdigit() and len(number) < 19:
        return int(number)
    current = get(home, adapter_path(what))["current_run"]
    if current is not None:
        return int(current["id"])
    last = get(home, adapter_path(what, "/runs", limit=1))["runs"]
    if not last:
        fail(f"{what} has had no run yet; start one with: lorad train {what}", Exit.REFUSED)
    return int(last[0]["id"])


def _tell_end(home: Home, client: str | None, run: dict[str, Any]) -> None:
    head = f"run {run['id']} of {run['adapter']}"
    if run["status"] != "completed":
        typer.echo(f"{head} is {run['status']}: {run['error']}")
        return
    typer.echo(f"{head} is completed: version {run['version']}")
    for version in _version(home, client, run):
        typer.echo(f"  {version['verdict']}: {version['verdict_reason']}")
        for line in measured(version["metrics"]):
            typer.echo(f"  {line}")


def _version(home: Home, client: str | None, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The run's version; none if it is deleted already."""
    name = run["adapter"] if client is None else f"{client}/{run['adapter']}"
    found = get(home, adapter_path(name, "/versions", limit=1))["versions"]
    return [one for one in found if one["run"] == run["id"]]
