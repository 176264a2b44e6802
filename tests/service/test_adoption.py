"""What adopting a version notes: which examples it has seen, which are gone, which are used."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete
from sqlmodel import col, select

from service.home import Home
from service.runs.adoption import AdoptionError, adopt, adopt_orphans
from storage import adapters, clients, examples, history, runs, versions
from storage.database import Database
from storage.examples import NewExample
from storage.tables import Adapter, Example, Run, RunStatus, Version

FILE = b"weights"


class Scene:
    """A home with one adapter, ten examples, and a running run whose version is on the disk."""

    def __init__(self, home: Home, database: Database) -> None:
        self.home, self.database = home, database
        with database.write() as session:
            owner = clients.put(session, "owner", b"\x01" * 32)
            self.client_id = owner.id
            adapter = adapters.create(session, new_adapter(owner.id))
            rows = examples.add(
                session,
                adapter,
                [NewExample(f"text {n}", "now", "train" if n < 7 else "holdout") for n in range(9)],
            )
            self.ids = [row.id for row in rows]
            self.run = runs.enqueue(session, adapter.id)
            runs.start(session, self.run)
            self.run.created_at += 10_000  # surely after the examples, on any clock
        self.path = home.version_path(adapter.id, self.run.id)

    def spec(self) -> None:
        folder = self.home.run(self.run.id)
        folder.mkdir()
        spec = {"train_example_ids": self.ids[:7], "holdout_example_ids": self.ids[7:]}
        (folder / "spec.json").write_text(json.dumps(spec))

    def publish(self, **fields: Any) -> None:
        folder = self.home.path / self.path
        folder.mkdir(parents=True)
        (folder / "README.md").write_bytes(FILE)
        measures = {"loss": 1.0}
        manifest = {
            "manifest_version": 1,
            "run_id": self.run.id,
            "adapter_id": self.run.adapter_id,
            "base_hash": "sha256:tiny",
            "steps": 12,
            "exact_resume": True,
            "exact_resume_reason": None,
            "metrics": {"holdout": 2, "train": 7, "before": measures, "after": measures},
            "holdout_rows": [],
            "engine": {"engine": "stand_in"},
            "skipped_example_ids": [],
            "files": {"README.md": hashlib.sha256(FILE).hexdigest()},
        }
        (folder / "version.json").write_text(json.dumps(manifest | fields))

    def delete(self, *ids: int) -> None:
        with self.database.write() as session:
            session.exec(delete(Example).where(col(Example.id).in_(ids)))

    def statuses(self) -> dict[int, str]:
        with self.database.read() as session:
            return dict(session.exec(select(Example.id, Example.status)).all())

    def end(self, status: RunStatus) -> None:
        with self.database.write() as session:
            run = runs.by_id(session, self.run.id)
            assert run is not None
            runs.end(session, run, status, "because")

    def row(self) -> Run:
        with self.database.read() as session:
            run = runs.by_id(session, self.run.id)
        assert run is not None
        return run


def new_adapter(client_id: int) -> Adapter:
    return Adapter(
        client_id=client_id,
        name="phone",
        base_model="tiny",
        base_hash="sha256:tiny",
        method="first_order",
        rank=8,
        alpha=16.0,
        targets=["q_proj"],
        use_rslora=False,
        max_tokens=64,
        too_long="refuse",
        training={},
    )


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    home = Home.at(tmp_path / "home")
    home.create()
    with Database(home.database) as database:
        yield Scene(home, database)


def test_a_version_has_seen_its_training_and_its_holdout(scene: Scene) -> None:
    scene.spec()
    scene.publish()
    version = adopt(scene.database, scene.home, scene.path)
    assert version.seen == [[scene.ids[0], scene.ids[-1]]]
    assert version.seen_deleted == 0
    assert [status for _, status in sorted(scene.statuses().items())] == (
        ["used"] * 7 + ["pending"] * 2
    )
    assert (scene.row().status, scene.row().forgotten) == ("completed", 0)
    assert adopt(scene.database, scene.home, scene.path).id == version.id
    with scene.database.read() as session:
        entries = history.page(session, scene.client_id, before=None, limit=10)
    assert [entry.kind for entry in entries] == ["version-insufficient", "run-completed"]


def test_what_was_forgotten_after_a_step_was_seen_and_what_before_was_not(scene: Scene) -> None:
    first, second, third, *_, measured, _ = scene.ids
    scene.spec()
    scene.delete(first, second, measured)
    forgotten = {first: 0, second: 5, measured: 0}
    scene.publish(
        skipped_example_ids=[first, second, measured],
        forgotten=[{"example_id": one, "from_step": step} for one, step in forgotten.items()],
    )
    version = adopt(scene.database, scene.home, scene.path)
    assert version.seen == [[second, measured - 1], [measured + 1, measured + 1]]
    assert version.seen_deleted == 1, "the second was deleted after the version saw it"
    assert scene.row().forgotten == 3
    assert scene.statuses()[third] == "used"


def test_an_earlier_workers_version_skipped_before_its_first_step(scene: Scene) -> None:
    first = scene.ids[0]
    scene.spec()
    scene.publish(skipped_example_ids=[first])
    version = adopt(scene.database, scene.home, scene.path)
    assert version.seen == [[first + 1, scene.ids[-1]]]
    assert scene.statuses()[first] == "pending"


def test_what_is_deleted_before_the_adoption_counts(scene: Scene) -> None:
    """The daemon was dead while the worker published, and nobody told it of the deletions."""
    scene.spec()
    scene.publish()
    scene.delete(*scene.ids[3:5])
    assert adopt(scene.database, scene.home, scene.path).seen_deleted == 2


def test_without_a_spec_it_is_not_known_what_was_seen(scene: Scene) -> None:
    scene.publish()
    version = adopt(scene.database, scene.home, scene.path)
    assert (version.seen, version.seen_deleted) == (None, 0)
    assert set(scene.statuses().values()) == {"pending"}


@pytest.mark.parametrize("status", ["interrupted", "paused", "failed"])
def test_a_whole_version_completes_its_run(scene: Scene, status: RunStatus) -> None:
    scene.end(status)
    scene.spec()
    scene.publish()
    adopt_orphans(scene.database, scene.home)
    assert (scene.row().status, scene.row().error) == ("completed", None)


def test_a_cancelled_runs_version_is_removed_and_never_a_row(scene: Scene) -> None:
    scene.end("cancelled")
    scene.spec()
    scene.publish()
    with pytest.raises(AdoptionError, match="cancelled"):
        adopt(scene.database, scene.home, scene.path)
    adopt_orphans(scene.database, scene.home)
    assert not (scene.home.path / scene.path).exists()
    with scene.database.read() as session:
        assert versions.of_run(session, scene.run.id) is None
    assert scene.row().status == "cancelled"


def test_a_deleted_version_is_removed_and_never_a_row_again(scene: Scene) -> None:
    scene.spec()
    scene.publish()
    adopt(scene.database, scene.home, scene.path)
    with scene.database.write() as session:
        session.exec(delete(Version))
    with pytest.raises(AdoptionError, match="has been deleted"):
        adopt(scene.database, scene.home, scene.path)
    adopt_orphans(scene.database, scene.home)
    assert not (scene.home.path / scene.path).exists()
    assert scene.row().status == "completed"


def test_a_deleted_runs_version_is_refused_and_left(scene: Scene) -> None:
    scene.spec()
    scene.publish()
    with scene.database.write() as session:
        session.exec(delete(Run))
    with pytest.raises(AdoptionError, match="has no run"):
        adopt(scene.database, scene.home, scene.path)
    adopt_orphans(scene.database, scene.home)
    assert (scene.home.path / scene.path).is_dir(), "what was deleted, the eraser removes"


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 0},
        {"metrics": {"holdout": 2, "train": 7, "before": {}, "after": {"loss": float("nan")}}},
        {"metrics": {"holdout": 2, "train": 7, "before": {}, "after": {"loss": float("inf")}}},
    ],
)
def test_what_nothing_was_trained_into_or_is_not_finite_is_no_version(
    scene: Scene, fields: dict[str, Any]
) -> None:
    scene.spec()
    scene.publish(**fields)
    with pytest.raises(AdoptionError):
        adopt(scene.database, scene.home, scene.path)
    assert scene.row().status == "running"
