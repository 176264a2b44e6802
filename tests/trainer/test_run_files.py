"""A run leaves no text in its files, and understands what an earlier lorad left."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import adapters, examples
from storage.database import Database
from tests.trainer.workers import (
    LABELS,
    Worker,
    adapter_bytes,
    at,
    delete,
    manifest_of,
    run_to_the_end,
    send_again,
    write_spec,
)
from trainer.durable import file_sha256

SETTINGS = {"steps": 6, "batch_size": 4, "checkpoint_every_steps": 2}


def files(home: Path) -> Iterator[Path]:
    """All files that a run has written."""
    for part in ("runs", "adapters"):
        yield from (path for path in (home / part).rglob("*") if path.is_file())


@pytest.mark.parametrize("declared", [True, False])
def test_no_file_and_no_event_holds_a_text_or_a_label(home: Path, declared: bool) -> None:
    write_spec(home, 1, **SETTINGS)
    if not declared:
        path = home / "runs/1/spec.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"labels": None}))
        with sqlite3.connect(home / "lorad.db") as connection:
            connection.execute("UPDATE examples SET label = 'label-canary ' || id")
        connection.close()
    killed = Worker(
        home,
        1,
        at("delete", 7, 60, event="step", step=3),
        at("kill", event="step", step=5),
    )
    _, events = killed.wait()
    names = {path.name for path in files(home)}
    assert "state.json" in names
    for path in files(home):
        assert b"canary" not in path.read_bytes(), path
    states = [json.loads(path.read_text()) for path in files(home) if path.name == "state.json"]
    assert all("label" not in row for state in states for row in state["before"])
    assert all(60 not in [row["example_id"] for row in state["before"]] for state in states)
    ended = Worker(home, 1)
    code, rest = ended.wait()
    assert code == 0, ended.log_text()
    for path in files(home):
        assert b"canary" not in path.read_bytes(), path
    assert "canary" not in json.dumps(events + rest) + killed.log_text() + ended.log_text()
    rows = manifest_of(home, rest[-1])["holdout_rows"]
    assert all(row.keys() == {"example_id", "before", "after"} for row in rows)
    predicted = {row["after"]["predicted"] for row in rows}
    assert predicted <= ({*LABELS} if declared else {None})


def as_an_earlier_lorad_left_it(home: Path) -> None:
    """The checkpoints with digests in the place of times, and labels beside the scores."""
    with Database.open_readonly(home / "lorad.db") as database, database.read() as session:
        key = adapters.data_key(session, 1)
        texts = {text.id: text for text in examples.load_texts(session, range(1, 81))}
    for folder in (home / "runs/1/checkpoints").iterdir():
        state = json.loads((folder / "state.json").read_text())
        del state["forgotten"]
        state["digests"] = {
            one: hmac.new(
                key,
                f"{len(texts[int(one)].input)}:{texts[int(one)].input}{texts[int(one)].label}".encode(),
                hashlib.sha256,
            ).hexdigest()[:32]
            for one in state.pop("changed_at")
        }
        state["before"] = [
            row | {"label": texts[row["example_id"]].label} for row in state["before"]
        ]
        (folder / "state.json").write_text(json.dumps(state))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"]["state.json"] = file_sha256(folder / "state.json")
        del manifest["sha256"]
        (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("happened", ["nothing", "corrected", "deleted"])
def test_a_run_under_way_over_the_update_is_not_lost(home: Path, happened: str) -> None:
    write_spec(home, 1, **SETTINGS)
    assert Worker(home, 1, at("terminate", event="step", step=3)).wait()[0] == 75
    as_an_earlier_lorad_left_it(home)
    if happened == "corrected":
        send_again(home, 7, "another text")
    elif happened == "deleted":
        delete(home, 7, 60)
    assert Worker(home, 1, at("kill", event="phase", phase="training")).wait()[0] == -9
    (checkpoint,) = (home / "runs/1/checkpoints").iterdir()
    state = json.loads((checkpoint / "state.json").read_text())
    assert "digests" not in state
    assert all("label" not in row for row in state["before"])

    events = run_to_the_end(home, 1)
    started = next(event for event in events if event["event"] == "started")
    assert started["resumed_from"] == 3
    manifest = manifest_of(home, events[-1])
    reason = manifest["exact_resume_reason"]
    if happened == "corrected":
        assert reason == "example 7 was changed while the run was under way"
    else:
        assert reason is None
    gone = [7, 60] if happened == "deleted" else []
    assert manifest["forgotten"] == [{"example_id": one, "from_step": 3} for one in gone]
    if happened == "nothing":
        write_spec(home, 2, **SETTINGS)
        run_to_the_end(home, 2)
        assert adapter_bytes(home, 1) == adapter_bytes(home, 2)
