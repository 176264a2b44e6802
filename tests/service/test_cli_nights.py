"""`lorad schedule`, `lorad pause` and `lorad resume`, as a person calls them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.service.daemon import Daemon
from tests.service.test_cli import lorad


def test_the_schedule_is_shown_and_set(daemon: Daemon) -> None:
    shown = lorad("schedule", home=daemon.home)
    assert shown.returncode == 0, shown.stderr
    zone = daemon.http.get("/v1/schedule").json()["zone"]
    today = datetime.now(ZoneInfo(zone)).date()
    assert shown.stdout.splitlines() == [
        f"Training may proceed, by the time of {zone}:",
        "  23:00-07:00 every day",
        "No window is open now.",
        f"The next one: {today:%a} {today} 23:00 to "
        f"{today + timedelta(days=1):%a} {today + timedelta(days=1)} 07:00.",
    ]
    arguments = ("--set", "22:30-06:00", "--set", "12:00-14:00", "--days", "sun,sat")
    changed = lorad("schedule", *arguments, "--json", home=daemon.home)
    assert changed.returncode == 0, changed.stderr
    answer = daemon.http.get("/v1/schedule").json()
    assert json.loads(changed.stdout)["windows"] == answer["windows"]
    assert answer["windows"] == [
        {"days": ["sat", "sun"], "from": "22:30", "to": "06:00"},
        {"days": ["sat", "sun"], "from": "12:00", "to": "14:00"},
    ]
    assert "22:30-06:00 sat, sun" in lorad("schedule", home=daemon.home).stdout
    now = lorad("schedule", "--set", "11:00-15:00", home=daemon.home).stdout
    assert f"A window is open now, until {today:%a} {today} 15:00." in now


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--set", "23:00"), "23:00-07:00"),
        (("--set", "7:00-23:00"), "7:00-23:00"),
        (("--set", "07:00-24:00"), "07:00-24:00"),
        (("--set", "07:00-07:00"), "a window needs a length"),
        (("--set", "23:00-07:00", "--days", "mon,funday"), "mon,funday"),
        (("--set", "23:00-07:00", "--days", "mon,mon"), "mon,mon"),
        (("--days", "mon"), "--set"),
    ],
)
def test_what_is_no_window_is_a_wrong_command_line(
    shared: Daemon, arguments: tuple[str, ...], named: str
) -> None:
    answer = lorad("schedule", *arguments, home=shared.home)
    assert answer.returncode == 2
    assert named in answer.stderr
    assert shared.http.get("/v1/schedule").json()["changed_at"] is None


def test_all_training_is_paused_and_resumed(daemon: Daemon) -> None:
    paused = lorad("pause", home=daemon.home)
    assert (paused.returncode, "until: lorad resume" in paused.stdout) == (0, True), paused.stderr
    assert daemon.http.get("/v1/pause").json()["until"] is None
    assert "all training is paused until `lorad resume`" in lorad(
        "schedule", home=daemon.home
    ).stdout.replace("\n", " ")
    kolkata = ZoneInfo("Asia/Kolkata")
    answer = lorad("pause", "--until", "07:00", home=daemon.home, TZ="Asia/Kolkata")
    told = datetime.fromisoformat(daemon.http.get("/v1/pause").json()["until"])
    assert f"{told.astimezone(kolkata):%a %Y-%m-%d} 07:00" in answer.stdout
    assert told.astimezone(kolkata).strftime("%H:%M:%S") == "07:00:00"
    assert timedelta(0) < told - datetime.now(UTC) <= timedelta(days=1)
    answer = lorad("pause", "--until", "90m", "--json", home=daemon.home)
    assert json.loads(answer.stdout) == daemon.http.get("/v1/pause").json()
    left = datetime.fromisoformat(json.loads(answer.stdout)["until"]) - datetime.now(UTC)
    assert timedelta(minutes=89) < left <= timedelta(minutes=90)
    always = ("--set", "00:00-12:00", "--set", "12:00-00:00")
    assert lorad("schedule", *always, home=daemon.home).returncode == 0
    answer = lorad("pause", "--until", "window", home=daemon.home)
    assert "until: lorad resume" in answer.stdout, "a window that is always open has no next one"
    for _ in range(2):
        resumed = lorad("resume", home=daemon.home)
        assert (resumed.returncode, "isn't paused" in resumed.stdout) == (0, True)
    assert not daemon.http.get("/v1/pause").json()["paused"]


def test_what_is_no_time_ahead_pauses_nothing(shared: Daemon) -> None:
    wrong = lorad("pause", "--until", "soon", home=shared.home)
    assert (wrong.returncode, "07:00" in wrong.stderr) == (2, True)
    assert "window" in wrong.stderr
    past = lorad("pause", "--until", "2026-01-01T08:00", home=shared.home)
    assert (past.returncode, "body.until must lie ahead" in past.stderr) == (4, True)
    assert not shared.http.get("/v1/pause").json()["paused"]


@pytest.mark.parametrize("command", ["schedule", "pause", "resume"])
def test_without_a_daemon_the_exit_code_is_3(tmp_path: Path, command: str) -> None:
    assert lorad(command, home=tmp_path / "home").returncode == 3
