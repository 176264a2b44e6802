"""`lorad pair` and `lorad clients`, as a person calls them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.service.apps import pair, redeem
from tests.service.daemon import ROOT, Daemon
from tests.service.test_cli import lorad


class Pairing:
    """`lorad pair` while it waits."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "service.cli.main", "pair", *arguments],
            env=os.environ
            | {"LORAD_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if "Ctrl-C" in line:
                return
        raise AssertionError(self.end())

    def end(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=60)
        return self.process.returncode, out, error


def test_a_person_pairs_an_app(daemon: Daemon) -> None:
    limits = ("--most-bytes", "0", "--examples-per-day", "7")
    shown = Pairing(daemon.home, "notes", "--scope", "train", "--scope", "status:read", *limits)
    code = shown.said.split("\n")[1].strip()
    assert len(code) == 9
    assert f"it is {daemon.port}" in shown.said
    assert redeem(daemon, code).status_code == 201
    assert shown.end() == (0, "notes is paired.\n", "")
    [client] = [
        one
        for one in json.loads(lorad("clients", "list", "--json", home=daemon.home).stdout)
        if one["name"] == "notes"
    ]
    assert client["scopes"] == ["train", "status:read"]
    assert client["quotas"] == {
        "examples_per_day": 7,
        "most_bytes": None,
        "most_pending": 100_000,
    }
    again = lorad("pair", "notes", "--scope", "train", home=daemon.home)
    assert again.returncode == 4
    assert "already" in again.stderr


def test_the_owner_lets_the_page_in_as_often_as_needed(daemon: Daemon) -> None:
    for _ in range(2):  # a tab that is closed has lost its token
        shown = Pairing(daemon.home, "--page")
        assert f"Open http://127.0.0.1:{daemon.port} in your browser" in shown.said
        paired = redeem(daemon, shown.said.split("\n")[1].strip())
        assert (paired.status_code, paired.json()["scopes"]) == (201, ["admin"])
        assert shown.end() == (0, "page is paired.\n", "")
    for arguments in (("--page", "notes"), ("--page", "--scope", "train"), ("notes",), ()):
        assert lorad("pair", *arguments, home=daemon.home).returncode == 2


def test_ctrl_c_withdraws_the_code_and_guesses_void_it(daemon: Daemon) -> None:
    shown = Pairing(daemon.home, "notes", "--scope", "train")
    code = shown.said.split("\n")[1].strip()
    shown.process.send_signal(signal.SIGINT)
    status, _, error = shown.end()
    assert (status, "withdrawn" in error) == (1, True)
    assert "Traceback" not in error
    assert redeem(daemon, code).status_code == 403
    shown = Pairing(daemon.home, "notes", "--scope", "train")
    code = shown.said.split("\n")[1].strip()
    for _ in range(5):
        redeem(daemon, "0000 0001" if code != "0000 0001" else "0000 0002")
    status, _, error = shown.end()
    assert (status, "guessing" in error) == (1, True)


def test_json_without_waiting(daemon: Daemon) -> None:
    answer = lorad("pair", "notes", "--scope", "train", "--no-wait", "--json", home=daemon.home)
    made = json.loads(answer.stdout)
    assert made["port"] == daemon.port
    assert made["name"] == "notes"
    assert redeem(daemon, made["code"]).status_code == 201


def test_json_while_waiting_is_an_object_a_line(daemon: Daemon) -> None:
    arguments = ("pair", "notes", "--scope", "train", "--json", "--home", str(daemon.home))
    with subprocess.Popen(
        [sys.executable, "-m", "service.cli.main", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stdout is not None
        made = json.loads(waiting.stdout.readline())  # before anybody has used the code
        assert redeem(daemon, made["code"]).status_code == 201
        rest = waiting.stdout.read().splitlines()
    assert [json.loads(line) for line in rest] == [{"name": "notes", "state": "used"}]
    assert waiting.returncode == 0


def test_revoke_and_rotate(daemon: Daemon) -> None:
    with pair(daemon, "notes") as app:
        renewed = json.loads(lorad("clients", "rotate", "notes", "--json", home=daemon.home).stdout)
        assert renewed["token"] != app.token
        assert app.http.get("/v1/client").status_code == 401
        revoked = lorad("clients", "revoke", "notes", home=daemon.home)
        assert revoked.returncode == 0
        assert "--replace" in revoked.stdout
        app.http.headers["Authorization"] = f"Bearer {renewed['token']}"
        assert app.http.get("/v1/client").status_code == 401
    assert "revoked" in lorad("clients", "list", home=daemon.home).stdout
    refused = lorad("clients", "rotate", "notes", home=daemon.home)
    assert (refused.returncode, "revoked" in refused.stderr) == (4, True)


def test_what_is_wrong_on_the_command_line_is_said(shared: Daemon) -> None:
    for arguments, code, said in (
        (("pair", "notes"), 2, "--scope"),
        (("pair", "notes", "--scope", "dance"), 2, "status:read"),
        (("pair", "notes", "--scope", "train", "--most-bytes", "-1"), 2, "most-bytes"),
        (("pair", "Not A Name", "--scope", "train"), 4, "body.name"),
        (("pair", "owner", "--scope", "train"), 4, "body.name"),
        (("clients", "revoke", "nobody"), 4, "no client of that name"),
        (("clients", "revoke", "owner"), 4, "owner"),
    ):
        answer = lorad(*arguments, home=shared.home)
        assert answer.returncode == code, answer.stderr
        assert said in answer.stderr
        assert "Traceback" not in answer.stderr


def test_deleting_asks_first(daemon: Daemon) -> None:
    with pair(daemon, "notes") as app:
        app.http.post("/v1/adapters", json={"name": "phone", "base_model": "tiny"})
        asked = lorad("clients", "delete", "notes", home=daemon.home)  # nobody there to say yes
        assert asked.returncode == 1
        assert app.http.get("/v1/adapters/phone").status_code == 200
        deleted = lorad("clients", "delete", "notes", "--yes", home=daemon.home)
        assert deleted.returncode == 0, deleted.stderr
        assert app.http.get("/v1/client").status_code == 401
    again = lorad("clients", "delete", "notes", "--yes", home=daemon.home)
    assert (again.returncode, "no client" in again.stderr) == (4, True)
    owner = lorad("clients", "delete", "owner", "--yes", home=daemon.home)
    assert owner.returncode == 4
    assert "Traceback" not in owner.stderr
    assert daemon.http.get("/v1/client").status_code == 200
