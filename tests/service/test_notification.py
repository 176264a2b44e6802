"""The notification by itself: what it says, how seldom it changes, and what its buttons are."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.phone.buttons import button_command
from service.phone.command import Command
from service.phone.left_behind import LeftBehind
from service.phone.messages import TimeLeft, paused_message, result_message, training_message
from service.phone.notification import Message, Notification
from storage.tables import Run, Version
from tests.service.phone_commands import REMOVE, SHOW, Clock, PhoneCommands


class Rig:
    """The notification of one daemon after the other on the same phone."""

    def __init__(self, commands: PhoneCommands) -> None:
        self.commands = commands
        self.clock = Clock()
        self.path = commands.prefix / "phone.json"
        self.screen = self.daemon()

    def daemon(self, *, enabled: bool = True, seconds: float = 5) -> Notification:
        find, clock = self.commands.find, self.clock
        self.screen = Notification(
            enabled=enabled,
            left=LeftBehind(self.path, "boot"),
            show=Command(SHOW, clock, find, seconds),
            remove=Command(REMOVE, clock, find, seconds),
            clock=clock,
        )
        return self.screen

    @property
    def contents(self) -> list[str]:
        return [options["content"] for options in self.commands.shown]


@pytest.fixture
def rig(commands: PhoneCommands) -> Rig:
    return Rig(commands)


def progress(content: str) -> Message:
    return Message("training", "lorad is training", content, (("Pause", "true"),))


PAUSED = Message("paused", "lorad is paused", "no training", (("Resume", "true"),))
DONE = Message(None, "lorad has trained", "a new version is ready")


def test_a_text_changes_once_a_minute(rig: Rig) -> None:
    for second in range(200):
        rig.clock.now = 1_000.0 + second
        rig.screen.put(progress(f"step {second}"))
    assert rig.contents == ["step 0", "step 60", "step 120", "step 180"]
    assert rig.screen.put(progress("step 200")) == 41
    rig.clock.now += 500
    rig.screen.put(progress("step 180"))
    assert len(rig.contents) == 4, "the same text is not shown again"


def test_a_new_stage_waits_ten_seconds(rig: Rig) -> None:
    for second in range(90):
        rig.clock.now = 1_000.0 + second
        stage = "loading" if second < 3 else "training"
        rig.screen.put(Message("training", "lorad is training", f"{second}", stage=stage))
    assert rig.contents == ["0", "10", "70"]


def test_another_state_is_told_at_once(rig: Rig) -> None:
    rig.screen.put(progress("step 1"))
    rig.screen.put(PAUSED)
    rig.screen.put(PAUSED)
    rig.screen.put(progress("step 1"))
    rig.screen.put(DONE)
    rig.screen.put(DONE)
    assert rig.contents == ["step 1", "no training", "step 1", "a new version is ready"]
    rig.screen.take_back()
    assert rig.commands.of(REMOVE) == [], "nobody takes the last word away"
    assert not rig.path.exists()


def test_it_is_quiet_and_only_training_can_not_be_swiped_away(rig: Rig) -> None:
    for message in (progress("step 1"), PAUSED, progress("step 2"), DONE):
        rig.screen.put(message)
    assert [("ongoing" in shown) for shown in rig.commands.shown] == [True, False, True, False]
    for shown in rig.commands.shown:
        assert (shown["id"], shown["priority"]) == ("lorad", "low")
        assert "alert-once" in shown
        assert shown["content"]
    assert [shown.get("button1") for shown in rig.commands.shown] == [
        "Pause",
        "Resume",
        "Pause",
        None,
    ]


def test_a_last_word_only_replaces_what_is_shown(rig: Rig) -> None:
    rig.screen.put(DONE)
    rig.screen.take_back(at_last=True)
    assert rig.commands.calls == []


def test_the_next_daemon_takes_away_what_a_killed_one_left(rig: Rig) -> None:
    rig.screen.put(progress("step 7"))
    again = rig.daemon()
    assert again.shown == "training"
    assert again.take_back() is None
    assert rig.commands.calls[-1] == [REMOVE, "lorad"]
    assert rig.daemon().shown is None


def test_a_pause_is_not_told_again_by_the_next_daemon(rig: Rig) -> None:
    """Its user may have swiped it away."""
    rig.screen.put(progress("step 7"))
    rig.screen.put(PAUSED)
    rig.daemon().put(PAUSED)
    assert rig.contents == ["step 7", "no training"]


@pytest.mark.parametrize("mode", ["hang", "fail"])
def test_what_fails_is_tried_ever_more_rarely(rig: Rig, mode: str) -> None:
    rig.commands.does(SHOW, mode)
    screen = rig.daemon(seconds=0.3)
    for second in range(0, 400, 10):
        rig.clock.now = 1_000.0 + second
        screen.put(progress(f"step {second}"))
        screen.put(PAUSED)
    assert rig.contents == ["step 0", "step 20", "step 40", "step 160"]
    assert not rig.commands.leftovers()
    assert screen.shown == "training", "it may be there all the same"


def test_without_the_commands_or_the_users_wish_there_is_none(rig: Rig) -> None:
    off = rig.daemon(enabled=False)
    assert off.put(progress("step 1")) is None
    rig.commands.remove(REMOVE)
    assert rig.daemon().put(progress("step 1")) is None
    assert rig.commands.calls == []


def run(**fields: Any) -> Run:
    return Run(**({"id": 3, "adapter_id": 1, "phase": "training", "step": 0} | fields))


@pytest.mark.parametrize(
    ("fields", "temperature", "left", "told"),
    [
        (
            {"step": 120, "total_steps": 400},
            34.06,
            725,
            "step 120/400 (30 %), 34.1 °C, about 12 min",
        ),
        ({"step": 399, "total_steps": 400}, None, 20, "step 399/400 (99 %), less than a minute"),
        ({"step": 1, "total_steps": 9}, 30, 7500, "step 1/9 (11 %), 30.0 °C, about 2 h 5 min"),
        ({"phase": None}, None, None, "starting"),
        ({"phase": "loading"}, 30, None, "loading the base model, 30.0 °C"),
        (
            {"phase": "evaluating_after", "evaluated": 10, "evaluating_total": 40},
            None,
            None,
            "measuring the result (25 %)",
        ),
        ({"phase": "something new"}, None, None, "training"),
    ],
)
def test_progress_in_words(
    fields: dict[str, Any], temperature: float | None, left: float | None, told: str
) -> None:
    message = training_message(run(**fields), temperature, left, ())
    assert (message.kind, message.title, message.content) == (
        "training",
        "lorad is training",
        told,
    )


def test_the_time_left_is_reckoned_from_what_was_seen() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    assert left.seconds(run(phase="loading")) is None
    assert left.seconds(run(step=100, total_steps=400)) is None
    clock.now += 50
    assert left.seconds(run(step=110, total_steps=400)) == 5 * 290
    assert left.seconds(run(step=105, total_steps=400)) == 10 * 295
    assert left.seconds(run(step=20, total_steps=400)) is None, "it was interrupted"
    clock.now += 10
    assert left.seconds(run(step=30, total_steps=400)) == 370
    assert left.seconds(run(id=4, step=90, total_steps=400)) is None, "another run"


def version(verdict: str, before: float | None, after: float | None, active: Any = None) -> Version:
    measured = {"before": {"accuracy": before}, "after": {"accuracy": after}}
    metrics = {"holdout": 40, "train": 9, **measured, "active": active}
    return Version(verdict=verdict, metrics=metrics)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            [version("promoted", 0.24, 0.84)],
            "a new version is ready, better than what there was: 24 % -> 84 % right",
        ),
        (
            [version("promoted", 0.24, 0.84, {"accuracy": 0.71})],
            "a new version is ready, better than what there was: 71 % -> 84 % right",
        ),
        ([version("promoted", None, None)], "a new version is ready, better than what there was"),
        (
            [version("rejected", 0.24, 0.2)],
            "a new version is ready, no better than what there was",
        ),
        (
            [version("insufficient", 0.2, 0.9)],
            "a new version is ready, not measured well enough to say whether it is better",
        ),
        (
            [version("rejected", 0.2, 0.2), version("promoted", 0.5, 0.755)],
            "2 new versions are ready, 1 better than what there was: 50 % -> 76 % right",
        ),
        (
            [version("promoted", 0.2, 0.3), version("promoted", 0.5, 0.75)],
            "2 new versions are ready, 2 better than what there was",
        ),
    ],
)
def test_the_last_word(made: list[Version], told: str) -> None:
    message = result_message(made)
    assert message is not None
    assert (message.kind, message.content) == (None, told)


def test_nothing_made_is_no_last_word() -> None:
    assert result_message([]) is None


def test_a_pause_says_until_when() -> None:
    assert paused_message(None, ()).content == "no training until you resume it"
    assert paused_message("Tue 01 Dec 23:00", ()).content == "no training until Tue 01 Dec 23:00"


def test_a_button_is_a_command_for_a_shell_that_knows_nothing(tmp_path: Path) -> None:
    dash = shutil.which("dash") or shutil.which("sh")
    assert dash is not None
    prefix = tmp_path / "it's a $(prefix)/usr"
    (prefix / "bin").mkdir(parents=True)
    program = prefix / "bin/lorad"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$PREFIX" "$HOME" "$PATH" "$@"\n')
    program.chmod(0o700)
    home = tmp_path / 'my "home"; false'
    told = {"PREFIX": str(prefix), "HOME": "/a b", "PATH": "/bin:/c'd", "SECRET": "hidden"}
    command = button_command(home, "pause", "--until", "window", environment=told)
    assert command is not None
    assert "hidden" not in command
    done = subprocess.run([dash, "-c", command], env={}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *(told[name] for name in ("PREFIX", "HOME", "PATH")),
        *("pause", "--until", "window", "--home", str(home)),
    ]


def test_without_a_launcher_it_is_the_program_of_this_python(tmp_path: Path) -> None:
    command = button_command(tmp_path, "pause", environment={"PREFIX": str(tmp_path)})
    own = Path(sys.executable).with_name("lorad")
    if own.exists():
        assert command == f"PREFIX={tmp_path} {own} pause --home {tmp_path}"
    else:
        assert command is None
