"""`lorad history`, as a person calls it."""

import json
import re
from datetime import datetime

from tests.service.apps import pair
from tests.service.daemon import Daemon
from tests.service.test_cli import lorad


def test_it_tells_what_happened_newest_first_in_local_time(ready: Daemon) -> None:
    run_id = ready.train()
    ready.wait_until_ended(run_id)
    answer = lorad("history", ready.name, home=ready.home, TZ="Pacific/Kiritimati")  # UTC+14
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    queued, created = lines[-2:]
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  run-queued +{ready.name}: run {run_id} queued", queued
    )
    assert "adapter-created" in created
    entries = json.loads(lorad("history", ready.name, "--json", home=ready.home).stdout)
    assert [entry["kind"] for entry in entries] == [line.split()[2] for line in lines]
    assert {entry["client"] for entry in entries} == {"owner"}
    shown = datetime.fromisoformat(f"{queued[:19]}+14:00")
    told = datetime.fromisoformat(entries[-2]["at"])
    assert abs((told - shown).total_seconds()) < 1


def test_everyones_by_default_and_one_apps_by_its_name(ready: Daemon) -> None:
    with pair(ready, "mail") as app:
        body = {"name": "own", "base_model": "tiny", "labels": ["now", "later"]}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
    everything = lorad("history", "--limit", "100", home=ready.home).stdout
    assert re.search(r"adapter-created +mail/own: it was created", everything)
    assert re.search(r"client-paired +mail: paired with", everything)
    assert re.search(rf"adapter-created +{ready.name}: it was created", everything)
    assert re.search(r"daemon-started +lorad .* started", everything)
    of_one = lorad("history", "mail/own", home=ready.home).stdout
    assert [line.split()[3] for line in of_one.splitlines()] == ["mail/own:"]
    assert "nothing" in lorad("history", "own", home=ready.home).stdout  # the owner has none
    unknown = lorad("history", "nobody/own", home=ready.home)
    assert unknown.returncode == 4
    assert "there is no client of that name" in unknown.stderr


def test_it_goes_through_pages_and_says_that_there_are_older_ones(ready: Daemon) -> None:
    for number in range(205):
        body = {"training": {"steps": number + 1}}
        etag = ready.http.get(ready.path()).headers["etag"]
        changed = ready.http.patch(ready.path(), json=body, headers={"If-Match": etag})
        assert changed.status_code == 200, changed.text
    kinds = ("--kind", "adapter-changed", "--kind", "adapter-created")
    entries = json.loads(
        lorad("history", ready.name, *kinds, "--limit", "1000", "--json", home=ready.home).stdout
    )
    assert [entry["kind"] for entry in entries] == ["adapter-changed"] * 205 + ["adapter-created"]
    assert len({entry["id"] for entry in entries}) == 206
    first = lorad("history", ready.name, "--limit", "201", home=ready.home).stdout.splitlines()
    assert len(first) == 202
    assert first[-1] == "there are older ones; --limit 402 shows more"
    assert "older" not in lorad("history", ready.name, "--limit", "206", home=ready.home).stdout


def test_no_daemon_and_a_wrong_limit(ready: Daemon) -> None:
    gone = lorad("history", home=ready.home / "none")
    assert gone.returncode == 3
    assert lorad("history", "--limit", "0", home=ready.home).returncode == 2
