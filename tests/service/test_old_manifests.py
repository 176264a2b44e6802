import json
from pathlib import Path
from typing import Any

import pytest

from service.home import Home
from service.runs.old_manifests import remove_labels


def write(home: Home, name: str, manifest: Any) -> Path:
    folder = home.adapters / "1" / "versions" / name
    folder.mkdir(parents=True)
    path = folder / "version.json"
    path.write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.at(tmp_path / "home")
    home.create()
    return home


def test_labels_go_and_all_else_stays(home: Home) -> None:
    rows = [{"example_id": n, "before": {"predicted": "x", "label_nll": 0.1 + n}} for n in (1, 2)]
    manifest = {"metrics": {"label": 0.30000000000000004}, "holdout_rows": rows, "ü": [1, None]}
    old = manifest | {"holdout_rows": [row | {"label": "heimlich ö"} for row in rows]}
    path = write(home, "run-00000001", old)
    assert remove_labels(home) == 1
    assert json.loads(path.read_text()) == manifest
    assert "heimlich" not in path.read_text()
    assert [one.name for one in path.parent.iterdir()] == ["version.json"]
    assert remove_labels(home) == 0


def test_todays_manifests_are_not_touched(home: Home) -> None:
    path = write(home, "run-00000001", {"holdout_rows": [{"example_id": 1, "predicted": "label"}]})
    before = path.stat()
    assert remove_labels(home) == 0
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "broken", ['{"label"', '["label"]', '{"holdout_rows": "label"}', '{"holdout_rows": ["label"]}']
)
def test_what_is_no_manifest_stops_nothing(home: Home, broken: str) -> None:
    path = write(home, "run-00000001", broken)
    write(home, "run-00000002", {"holdout_rows": [{"label": "x"}]})
    assert remove_labels(home) == 1
    assert path.read_text() == broken
