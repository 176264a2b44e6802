"""The service under Debian's real runit, with the real daemon where it matters."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.service.daemon import add_stand_in_model, is_alive
from tests.termux.fake_termux import BEHAVED, ROOT, FakeTermux, until

pytestmark = pytest.mark.slow

STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d\.\d{5} ")


def real_daemon(termux: FakeTermux) -> Path:
    """The real launcher starts this project's own lorad from what looks like a venv."""
    data = termux.home / "data of mine"
    add_stand_in_model(data)
    termux.launcher()
    venv = termux.program / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(f"executable = {os.path.realpath(sys.executable)}\n")
    (venv / "bin/lorad").write_text("from service.cli.main import main\n\nmain()\n")
    (venv / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (venv / "bin/python").chmod(0o700)
    termux.settings(
        f'LORAD_HOME="{data}"',
        "LORAD_PORT=0",
        "LORAD_SOCKET=none",
        "LORAD_SENSORS=fake",
        "LORAD_WORKER_MODULE=tests.service.stand_in_worker",
        f"PYTHONPATH={ROOT}",
    )
    return data


def serving(data: Path, but: int = 0) -> tuple[int, httpx.Client]:
    """The process that serves, other than ``but``, and a client of it."""

    def answers() -> tuple[int, httpx.Client] | None:
        try:
            state = json.loads((data / "daemon.json").read_text())
            token = (data / "token").read_text().strip()
            client = httpx.Client(
                base_url=f"http://127.0.0.1:{state['port']}",
                headers={"Authorization": f"Bearer {token}"},
                trust_env=False,
            )
            if state["pid"] != but and client.get("/healthz").status_code == 200:
                return state["pid"], client
        except (FileNotFoundError, ValueError, httpx.TransportError):
            pass
        return None

    found: tuple[int, httpx.Client] = until(answers, 30)
    return found


def test_the_real_daemon_starts_is_killed_recovers_and_ends(termux: FakeTermux) -> None:
    data = real_daemon(termux)
    termux.install()
    assert termux.state == "down"
    assert termux.log.exists(), "svlogd runs"
    assert not termux.logged()

    termux.enable()
    pid, http = serving(data)
    assert pid == termux.pid, "run became the daemon: a signal of runsv's reaches it"
    adapter = {"name": "phone", "base_model": "tiny", "labels": ["now", "later"]}
    assert http.post("/v1/adapters", json=adapter).status_code == 201
    example = {"input": "Mum: ring me", "label": "now"}
    assert http.post("/v1/adapters/phone/examples", json=example).status_code == 201

    os.kill(pid, signal.SIGKILL)
    again, http = serving(data, but=pid)
    assert http.get("/v1/adapters/phone/examples").json()["examples"][0]["input"] == "Mum: ring me"
    assert termux.pid == again

    termux.sv("-w", "20", "down", "lorad")
    assert not is_alive(again)
    assert termux.state == "down"
    lines = termux.logged().splitlines()
    assert all(STAMP.match(line) for line in lines)
    assert lines[-1].endswith("the daemon has ended"), "SIGTERM, and time to obey it"
    assert termux.log.parent.stat().st_mode & 0o077 == 0
    assert termux.beat() == "was told to be down"

    assert termux.service_sh("uninstall").returncode == 0
    assert (data / "token").exists()
    assert (termux.home / ".config/lorad/env").exists()


def test_a_dead_venv_is_told_of_once(termux: FakeTermux) -> None:
    remedy = "/termux/install.sh', which makes it anew"
    termux.launcher()
    termux.install()
    termux.enable()
    until(lambda: "stays down" in termux.logged() and termux.state == "down")
    assert termux.logged().count(remedy) == 1
    assert "gave up" in termux.service_sh("status").stdout

    assert termux.beat() == "was started again after giving up"
    until(lambda: termux.logged().count("stays down") == 2 and termux.state == "down")

    termux.command("lorad", BEHAVED)
    assert termux.install().stdout.startswith("lorad: the service is started again")
    until(lambda: "the daemon serves" in termux.logged())
    assert termux.beat() == "runs"


def test_a_crash_loop_is_paused(termux: FakeTermux) -> None:
    termux.command("lorad", 'echo "tried"; exit 1\n')
    termux.install()
    termux.enable()
    until(lambda: "2 times in a row" in termux.logged())
    assert termux.logged().count("tried") == 2
    [pause] = until(lambda: termux.pids("sleep"))
    assert pause == termux.pid, "the pause costs one process, and dies with it"
    assert termux.state == "run"
    assert termux.beat() == "runs"

    termux.sv("term", "lorad")  # what `sv restart lorad` sends
    until(lambda: termux.logged().count("tried") > 2)
    assert not is_alive(pause)
    until(lambda: "2 times in a row" in termux.service_sh("status").stdout)

    termux.sv("down", "lorad")
    until(lambda: termux.state == "down")
    assert termux.pids("sleep") == []


def test_a_daemon_that_outlived_its_runsv_is_ended_first(termux: FakeTermux) -> None:
    termux.command("lorad", BEHAVED)
    termux.install()
    termux.enable()
    until(lambda: "the daemon serves" in termux.logged())
    left = termux.pid
    [runsv] = termux.pids("runsv")
    os.kill(runsv, signal.SIGKILL)
    until(lambda: termux.pid not in (0, left) and f"serves as {termux.pid}" in termux.logged())
    assert not is_alive(left)
    assert f"(process {left}) has outlived its supervisor" in termux.logged()
    assert "ends in order" in termux.logged()
    assert len(termux.pids("svlogd")) == 1


def test_the_log_keeps_at_most_so_many_files(termux: FakeTermux) -> None:
    folder = termux.log.parent

    def feed(count: int, words: str) -> None:
        text = "".join(f"{number} {words}\n" for number in range(count))
        subprocess.run(
            [str(termux.prefix / "bin/sh"), str(ROOT / "termux/service/log-run")],
            env=termux.environment,
            input=text,
            text=True,
            check=True,
            timeout=30,
        )

    def kept() -> list[Path]:
        return [path for path in folder.iterdir() if path.name == "current" or path.name[0] == "@"]

    feed(30_000, "x" * 60)  # 2 MB, and 0.8 MB of times
    assert len(kept()) == 21
    assert 1_800_000 < sum(path.stat().st_size for path in kept()) <= 2_100_000
    lines = termux.logged().splitlines()
    assert lines[-1].split()[1] == "29999", "the newest are kept"
    assert all(STAMP.match(line) for line in lines)

    (folder / "config").write_text("s5000\nn2\n")
    feed(1000, "y" * 60)
    assert (folder / "config").read_text() == "s5000\nn2\n", "the user's own limits are kept"
    assert termux.log.stat().st_size <= 5000


def test_a_log_that_is_killed_over_and_over_does_not_grow(termux: FakeTermux) -> None:
    termux.command("lorad", BEHAVED)
    termux.log.parent.mkdir(parents=True)
    (termux.log.parent / "config").write_text("n3\n")
    for _ in range(6):
        writer = subprocess.Popen(
            [str(termux.prefix / "bin/sh"), str(ROOT / "termux/service/log-run")],
            env=termux.environment,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert writer.stdin is not None
        writer.stdin.write("a line\n")
        writer.stdin.flush()
        until(lambda: termux.log.exists() and termux.log.stat().st_size)
        writer.kill()
        writer.wait()
        writer.stdin.close()
    assert len(list(termux.log.parent.glob("@*"))) <= 4
