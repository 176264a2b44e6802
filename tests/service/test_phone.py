"""A real daemon on a phone whose commands are stand-ins: what it calls around a training."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import Daemon, add_stand_in_model, until
from tests.service.phone_commands import LOCK, REMOVE, SHOW, UNLOCK, PhoneCommands
from tests.service.test_cli import lorad
from tests.service.test_gates_live import say

ENDLESS = {"steps": 100_000, "step_seconds": 0.02}
PROGRAM = ("-m", "tests.service.phone_daemon")


def phone(home: Path, commands: PhoneCommands, **environment: str) -> Daemon:
    """A daemon with an adapter that has examples; no gate's cool-down makes its runs wait."""
    told = {"PREFIX": str(commands.prefix), "HOME": str(commands.prefix.parent)}
    told |= {"LORAD_GATE_COOL_DOWN_SECONDS": "0"}
    daemon = Daemon(home, program=PROGRAM, environment=told | environment)
    daemon.script(**ENDLESS)
    if daemon.adapter().get("name") is None:
        daemon.create_adapter()
        daemon.post_examples()
    return daemon


def wake_lock(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.http.get("/v1/device").json()["wake_lock"]
    return found


def is_training(run: dict[str, Any]) -> bool:
    return bool(run["status"] == "running" and run["step"] >= 1)


def test_from_a_runs_begin_over_a_pause_to_its_end(home: Path, commands: PhoneCommands) -> None:
    with phone(home, commands, KEEP_SECONDS="1") as daemon:
        assert wake_lock(daemon) == {"state": "not-held", "why": "nothing trains"}
        run_id = daemon.train()
        until(lambda: wake_lock(daemon)["state"] == "held")
        daemon.wait_for(run_id, is_training)
        assert commands.locks == [LOCK]
        assert "wake lock: held: a worker trains" in lorad("status", home=home).stdout
        say(daemon, plugged=False)
        daemon.wait_for(run_id, lambda run: run["status"] == "interrupted")
        until(lambda: commands.of(REMOVE))
        assert wake_lock(daemon)["state"] == "not-held"
        assert commands.order == [LOCK, SHOW, UNLOCK, REMOVE]
        daemon.script(steps=100, step_seconds=0.02)
        say(daemon, plugged=True, battery_temperature=31.4)
        daemon.wait_for(run_id, lambda run: run["status"] == "completed")
        until(lambda: commands.shown[-1]["title"] == "lorad has trained")
        until(lambda: not (home / "phone.json").exists())  # once the command has ended
    assert commands.order == [LOCK, SHOW, UNLOCK, REMOVE, LOCK, SHOW, UNLOCK, SHOW]
    assert any("31.4 °C" in shown["content"] for shown in commands.shown)
    assert commands.shown[-1]["content"] == (
        "a new version is ready, better than what there was: 30 % -> 90 % right"
    )
    assert "phone" not in str(commands.shown), "no adapter's name"


def test_a_short_pause_and_a_killed_daemon(home: Path, commands: PhoneCommands) -> None:
    daemon = phone(home, commands)
    run_id = daemon.train()
    daemon.wait_for(run_id, is_training)
    say(daemon, plugged=False)
    daemon.wait_for(run_id, lambda run: run["status"] == "interrupted")
    say(daemon, plugged=True)
    daemon.wait_for(run_id, is_training)
    until(lambda: commands.shown)
    assert commands.locks == [LOCK], "over a short pause it is kept"
    daemon.kill()  # and the run waits an hour, so the next daemon trains nothing
    with phone(home, commands, KEEP_SECONDS="0"):
        until(lambda: commands.of(REMOVE))
        assert not (home / "phone.json").exists()
    assert commands.order == [LOCK, SHOW, UNLOCK, REMOVE], "given back once"


def test_after_a_restart_of_the_phone_there_is_nothing_to_give_back(
    home: Path, commands: PhoneCommands
) -> None:
    daemon = phone(home, commands, LORAD_NOTIFICATION="off")
    daemon.wait_for(daemon.train(), is_training)
    until(lambda: wake_lock(daemon)["state"] == "held")
    daemon.kill()
    note = home / "phone.json"
    told = json.loads(note.read_text())
    assert told["wake_lock"] is True
    note.write_text(json.dumps(told | {"boot": "another"}))
    with phone(home, commands, KEEP_SECONDS="0") as again:
        assert wake_lock(again)["state"] == "not-held"
    assert commands.calls == [[LOCK]]


def test_what_hangs_holds_nothing_up(home: Path, commands: PhoneCommands) -> None:
    for name in (LOCK, UNLOCK, SHOW, REMOVE):
        commands.does(name, "hang")
    # Were anything to wait for a call, it would do so for longer than this test waits for it.
    daemon = phone(home, commands, COMMAND_SECONDS="60", KEEP_SECONDS="0")
    run_id = daemon.train()
    daemon.wait_for(run_id, is_training)
    until(lambda: commands.calls)
    assert wake_lock(daemon)["why"] == f"{LOCK} is being asked for it"
    say(daemon, battery_temperature=50)
    hot = daemon.wait_for(run_id, lambda run: run["status"] == "interrupted")
    assert "50" in hot["error"]
    say(daemon, battery_temperature=25)
    daemon.wait_for(run_id, is_training)
    assert commands.calls == [[LOCK]], "never two at once"
    assert commands.running()
    begin = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - begin < 40
    assert not commands.leftovers()
    assert "the next start does that" in daemon.log()
    assert json.loads((home / "phone.json").read_text())["wake_lock"] is True


def test_without_termux_nothing_is_called_or_logged(home: Path, tmp_path: Path) -> None:
    with Daemon(home, environment={"PREFIX": str(tmp_path)}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.wait_until_ended(daemon.train())
        assert wake_lock(daemon) == {"state": "none", "why": f"{LOCK} is not installed"}
    assert "lorad.phone" not in daemon.log()
    assert not (home / "phone.json").exists()


def test_the_user_may_not_want_any(home: Path, commands: PhoneCommands) -> None:
    """What an earlier daemon left on the screen is removed all the same."""
    daemon = phone(home, commands, LORAD_WAKE_LOCK="off")
    daemon.wait_for(daemon.train(), is_training)
    assert wake_lock(daemon) == {"state": "none", "why": "LORAD_WAKE_LOCK is off"}
    until(lambda: commands.shown)
    daemon.kill()
    with phone(home, commands, LORAD_WAKE_LOCK="off", LORAD_NOTIFICATION="off"):
        until(lambda: commands.of(REMOVE))
    assert commands.order == [SHOW, REMOVE]


def press(commands: PhoneCommands, label: str) -> dict[str, str]:
    """Press a button of the notification that is shown, as Android does; its options."""
    dash = shutil.which("dash")
    if dash is None:
        pytest.skip("dash is not installed: apt-get install dash")
    until(lambda: label in commands.shown[-1].values())
    shown = commands.shown[-1]
    [number] = [name for name, value in shown.items() if value == label]
    done = subprocess.run(
        [dash, "-c", shown[f"{number}-action"]],
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return shown


def test_the_buttons_pause_resume_and_stop(tmp_path: Path, commands: PhoneCommands) -> None:
    home = tmp_path / 'her "home" is $HOME'
    add_stand_in_model(home)
    with phone(home, commands) as daemon:
        run_id = daemon.train()
        daemon.wait_for(run_id, is_training)
        press(commands, "Pause")
        daemon.wait_for(run_id, lambda run: run["status"] == "interrupted")
        pause = daemon.http.get("/v1/pause").json()
        assert (pause["paused"], pause["until"]) == (True, None)
        paused = press(commands, "Resume")
        assert paused["content"] == "no training until you resume it"
        assert "ongoing" not in paused
        assert not daemon.http.get("/v1/pause").json()["paused"]
        daemon.wait_for(run_id, is_training)
        press(commands, "Stop")
        daemon.wait_for(run_id, lambda run: run["status"] == "interrupted")
        next_window = daemon.http.get("/v1/schedule").json()["next"]["from"]
        assert daemon.http.get("/v1/pause").json()["until"] == next_window
        until(lambda: commands.shown[-1]["title"] == "lorad is paused")
        assert re.fullmatch(
            r"no training until \w{3} \d\d \w{3} 23:00", commands.shown[-1]["content"]
        )
        assert daemon.http.delete("/v1/pause").status_code == 200
        daemon.wait_for(run_id, is_training)
        until(lambda: commands.shown[-1]["title"] == "lorad is training")
    # All that was put up is taken down at the daemon's end, and the lock was kept all along.
    assert commands.order == [LOCK, SHOW, UNLOCK, REMOVE]
    assert not (home / "phone.json").exists()
    assert not commands.leftovers()
