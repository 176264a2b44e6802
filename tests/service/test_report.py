"""`lorad report`: what is in it, and that nothing that names anybody is."""

import json
import os
import platform
import re
import sqlite3
from pathlib import Path

import pytest

from service.engine_files import EngineFiles
from tests.service.apps import pair
from tests.service.daemon import Daemon, add_stand_in_model
from tests.service.test_cli import lorad

CANARY = "canary-3391"


def test_it_tells_of_the_trainings_and_names_nobody(tmp_path: Path) -> None:
    home = tmp_path / f"{CANARY}-folder"
    add_stand_in_model(home, name=f"{CANARY}-model", base_hash=f"sha256:{CANARY}")
    with Daemon(home) as daemon:
        daemon.name = f"{CANARY}-adapter"
        labels = [f"{CANARY} now", f"{CANARY} later"]
        daemon.create_adapter(base_model=f"{CANARY}-model", labels=labels)
        for split, count in (("train", 10), ("holdout", 40)):
            rows = [
                {"input": f"{CANARY} {split} {n}", "label": labels[0], "split": split}
                for n in range(count)
            ]
            answer = daemon.http.post(daemon.path("/examples"), json={"examples": rows})
            assert answer.status_code == 201, answer.text
        with pair(daemon, f"{CANARY}-app", "status:read"):
            pass
        daemon.script(fail_at=3, fingerprint=CANARY)
        daemon.wait_until_ended(daemon.train())
        daemon.script()
        daemon.wait_until_ended(daemon.train())
        answer = lorad("report", "--json", home=home)
        assert answer.returncode == 0, answer.stderr
        words = lorad("report", home=home)
        assert words.returncode == 0, words.stderr
        daemon.stop()
    add_engine_files(home)
    spoil(home)
    after = lorad("report", "--json", home=home)
    assert after.returncode == 0, after.stderr
    for said in (answer.stdout, words.stdout, after.stdout):
        assert CANARY not in said
        assert str(home) not in said
        assert not re.search(r"/[a-z]+/", said), "a path"
    told, later = json.loads(answer.stdout), json.loads(after.stdout)
    assert told["runs"]["completed"] == 1
    assert told["happened"]["run-completed"] == 1
    [training] = told["trainings"]
    assert training["train"] == 10
    assert training["verdict"] == "promoted"
    assert training["engine"] == "other", "the stand-in's is no engine of ours"
    assert told["speed"]["steps"] == 14
    assert later["speed"] is None
    assert later["engine"]["verdict"] == {"engine": "qnn", "form": "table"}
    assert later["engine"]["given_up"] == ["qnn"]
    assert later["device"]["soc"] == "SM8650"
    assert later["nights"] == [
        {"hours": 8.0, "first_level": 90.0, "last_level": 80.0, "hottest_celsius": 39.5}
    ]
    assert later["gates_closed"]["battery_temperature"] == 2
    assert later["trainings"][0]["engine"] == "other"
    assert later["trainings"][0]["fallbacks"] == 3
    assert later["trainings"][0]["products"] == {"qnn": {"forward": 7}}
    assert later["trainings"][0]["seconds_per_step"] == 0.5


def add_engine_files(home: Path) -> None:
    """A verdict and a demotion whose every sentence has a canary in it."""
    (home / "engine").mkdir(exist_ok=True)
    check = {"name": CANARY, "engine": "qnn", "form": "table", "passed": True, "seconds": 1.5}
    check |= {"cause": CANARY, "remedy": CANARY, "device": CANARY, "soc": "SM8650"}
    verdict = {"fingerprint": CANARY, "at": "2026-11-30T01:00:00Z", "checks": [check]}
    verdict |= {"engine": "qnn", "form": "table", "why": CANARY, "form_why": CANARY}
    (home / "engine/doctor.json").write_text(json.dumps(verdict))
    demotion = {"engine": "qnn", "fingerprint": CANARY, "cause": CANARY, "phase": CANARY}
    (home / "engine/demotions.json").write_text(json.dumps({"demotions": [demotion]}))
    files = EngineFiles(home / "engine")
    assert files.verdict() is not None
    assert files.demotions()


def spoil(home: Path) -> None:
    """Whatever a worker or a night may write, canaries among it."""
    connection = sqlite3.connect(home / "lorad.db")
    engine = {"engine": CANARY, "form": CANARY, "threads": CANARY, CANARY: 1}
    engine |= {"products": {"qnn": {"forward": 7, CANARY: 1}, CANARY: {"forward": 1}}}
    engine |= {"fallbacks": [{"cause": CANARY, "matrix": CANARY, "count": 3}]}
    [(text,)] = connection.execute("SELECT manifest FROM versions").fetchall()
    manifest = json.loads(text) | {"engine": engine, "steps": 10, "seconds": 5.0}
    connection.execute("UPDATE versions SET manifest = ?", (json.dumps(manifest),))
    connection.execute("DELETE FROM nights")
    connection.execute(
        "INSERT INTO nights (key, opened_at, closed_at, first_level, last_level, hottest) "
        "VALUES (?, 1700000000000, 1700028800000, 90.0, 80.0, 39.5)",
        (CANARY,),
    )
    connection.execute("DELETE FROM history WHERE kind = 'gate-closed'")
    for message in ("battery_temperature is closed", "battery_temperature is closed", CANARY):
        connection.execute(
            "INSERT INTO history (at, kind, message) VALUES (1700000000000, 'gate-closed', ?)",
            (message,),
        )
    connection.execute(
        "INSERT INTO history (at, kind, message) VALUES (1700000000000, ?, 'x')", (CANARY,)
    )
    connection.commit()
    connection.close()


def test_a_home_without_a_database_is_a_clear_error(tmp_path: Path) -> None:
    answer = lorad("report", home=tmp_path)
    assert answer.returncode == 1
    assert "does not exist" in answer.stderr


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ("5.15.123-android13-8-00042-gabc123-ab999", "5.15.123-android13-8"),
        ("6.1.0-kays-phone", "6.1.0"),
        ("kays-kernel", None),
    ],
)
def test_of_the_kernel_only_its_version(
    monkeypatch: pytest.MonkeyPatch, release: str, told: str | None
) -> None:
    """As Python on Android tells it, where platform.release() is that of Android."""
    from service import device_report

    uname = os.uname_result(("Linux", "kays-phone", release, "#1 SMP", "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    monkeypatch.setattr(platform, "release", lambda: "16.0")
    assert device_report._device(None)["kernel"] == told
