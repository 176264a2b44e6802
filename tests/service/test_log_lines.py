"""The log: its two styles, and that nothing of a person's texts is ever in it."""

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from service.log_lines import formatter
from tests.service.daemon import Daemon

CANARY = "canary-5512"


def line(style: Any, message: str, *arguments: object, **more: Any) -> str:
    record = logging.LogRecord("lorad.x", logging.INFO, "", 0, message, arguments, None)
    vars(record).update(more)
    return formatter(style).format(record)


def test_the_two_styles() -> None:
    plain = line("plain", "run %d: worker %d started", 3, 99)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:,]+ INFO lorad\.x: run 3: worker 99 started", plain)
    found = json.loads(line("json", "run %d: worker %d started", 3, 99))
    assert found["time"].endswith("Z")
    del found["time"]
    assert found == {
        "level": "INFO",
        "logger": "lorad.x",
        "event": "run %d: worker %d started",
        "message": "run 3: worker 99 started",
        "run": 3,
        "worker": 99,
    }


def test_ids_are_those_that_the_message_has_in_front_of_them() -> None:
    found = json.loads(line("json", "%s of adapter %d: 100%% of run %d", "rows", 7, 8))
    assert (found["adapter"], found["run"]) == (7, 8)
    assert "rows" not in found


def test_what_is_given_by_name_stands_by_itself_on_one_line() -> None:
    text = line("json", "%s\n%s", "a", "b", event="request", status=200)
    assert "\n" not in text
    found = json.loads(text)
    assert (found["event"], found["status"], found["message"]) == ("request", 200, "a\nb")


@pytest.mark.parametrize("style", ["plain", "json"])
def test_of_an_exception_only_its_kind_is_told(style: str) -> None:
    try:
        raise ValueError(CANARY)
    except ValueError:
        told = line(style, "it failed", exc_info=sys.exc_info())
    assert "ValueError" in told
    assert CANARY not in told


@pytest.mark.parametrize("style", ["plain", "json"])
def test_no_text_of_an_app_reaches_a_log(home: Path, style: str) -> None:
    with Daemon(home, environment={"LORAD_LOG": style}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        path = daemon.path("/examples")
        good = {"input": f"{CANARY} in", "label": "now", "external_id": f"{CANARY} id"}
        assert daemon.http.post(path, json=good).status_code == 201
        for body in (
            {"input": f"{CANARY} in", "label": f"{CANARY} label"},
            {"input": CANARY * 9000, "label": "now"},
            {CANARY: 1},
            [CANARY],
        ):
            assert daemon.http.post(path, json=body).status_code == 422
        assert daemon.http.post(path, content=f'{{"{CANARY}'.encode()).status_code in (400, 415)
        headers = {"X-Said": CANARY, "Authorization": f"Bearer {CANARY}"}
        assert daemon.http.get(f"/v1/{CANARY}", headers=headers).status_code == 401
        assert daemon.http.get(f"/v1/{CANARY}?text={CANARY}").status_code == 404
        assert daemon.http.get(path, params={"external_id": f"{CANARY} id"}).status_code == 200
        daemon.script(fail_at=3)
        daemon.wait_until_ended(daemon.train())
        daemon.script()
        daemon.wait_until_ended(daemon.train(training={"seed": 2}))
        daemon.http.delete(path, params={"external_id": f"{CANARY} id"})
        assert daemon.http.get(daemon.path("/versions/1")).status_code == 200
        daemon.stop()
        said = daemon.log()
    assert CANARY not in said
    logs = [file for file in home.rglob("*") if file.suffix == ".log"]
    assert logs
    for file in logs:
        assert CANARY not in file.read_text(errors="replace"), file
    lines = [one for one in said.splitlines() if "lorad serves" not in one]
    lines = [one for one in lines if "the owner's token lies in" not in one]
    if style == "json":
        records = [json.loads(one) for one in lines]
        assert all({"time", "level", "logger", "event"} <= set(one) for one in records)
        requests = [one for one in records if one["event"] == "request"]
        assert {"POST", "GET", "DELETE"} <= {one["method"] for one in requests}
        assert all(one["route"].startswith(("/", "(")) for one in requests)
        started = [one for one in records if one["event"] == "run %d: worker %d started"]
        assert [one["run"] for one in started] == [1, 2]
    else:
        access = [one.partition(" INFO lorad.access: ")[2] for one in lines]
        assert any(one.startswith("POST /v1/adapters/{name}/examples 201 ") for one in access)
        number = "GET /v1/adapters/{name}/versions/{number} 200 "
        assert any(one.startswith(number) for one in access)
