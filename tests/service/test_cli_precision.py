"""`lorad model add --format auto` and `lorad model precision`, as a person calls them."""

import json
from pathlib import Path

import pytest

from tests.service.test_cli import lorad
from trainer.models.tiny import write_tiny_model


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one source: measured with the demo's rows, and not measured."""
    home = tmp_path_factory.mktemp("precision")
    source = home / "source"
    write_tiny_model(source, layers=1)
    for name, *options in (("plain",), ("chosen", "--format", "auto", "--budget", "0.65")):
        added = lorad("model", "add", name, str(source), *options, home=home, LORAD_THREADS="1")
        assert added.returncode == 0, added.stderr
    return home


def test_prints_what_was_measured_and_chosen(home: Path) -> None:
    answer = lorad("model", "precision", "chosen", home=home, COLUMNS="200")
    assert answer.returncode == 0, answer.stderr
    text = " ".join(answer.stdout.split())
    assert "chosen: 0." in text
    assert "a budget of 0.650 bytes per parameter" in text
    assert "notifications.jsonl, one matrix at a time, against fp32 weights" in text
    for row in ("0 qkv_proj", "0 o_proj", "0 gate_up_proj", "0 down_proj", "embed_tokens"):
        assert row in answer.stdout
    assert answer.stdout.index("by kind") < answer.stdout.index("by matrix")
    assert "for the budget" in answer.stdout


def test_json_is_the_record_and_names_the_weights(home: Path) -> None:
    record = json.loads(lorad("model", "precision", "chosen", "--json", home=home).stdout)
    listed = json.loads(lorad("model", "list", "--json", home=home).stdout)
    (model,) = [model for model in listed if model["name"] == "chosen"]
    assert model["format"] == "auto"
    assert set(model["formats"]) == {matrix["format"] for matrix in record["matrices"]}
    assert record["base_hash"] == model["base_hash"]
    assert record["mix"]["bytes_per_parameter"] <= 0.65
    texts = record["calibration"]["texts"]
    assert (texts["file"], record["calibration"]["threads"]) == ("notifications.jsonl", 1)
    on_disk = json.loads((home / "models/chosen/precision.json").read_text())
    assert record == {key: on_disk[key] for key in record}
    assert on_disk.keys() == record.keys()


def test_a_model_that_was_not_measured_says_so(home: Path) -> None:
    answer = lorad("model", "precision", "plain", home=home)
    assert answer.returncode == 0
    assert "plain: int8, 1." in answer.stdout
    assert "Nothing was measured" in answer.stdout
    assert "--format auto" in answer.stdout
    found = json.loads(lorad("model", "precision", "plain", "--json", home=home).stdout)
    assert found["measured"] is False
    assert list(found["formats"]) == ["int8"]


def test_a_record_of_other_weights_is_not_shown(home: Path) -> None:
    path = home / "models/plain/precision.json"
    path.write_text((home / "models/chosen/precision.json").read_text())
    answer = lorad("model", "precision", "plain", home=home)
    path.write_text("{")
    damaged = lorad("model", "precision", "plain", home=home)
    path.unlink()
    assert (answer.returncode, damaged.returncode) == (1, 1)
    assert "belongs to the weights sha256:" in answer.stderr
    assert "precision.json can't be read" in damaged.stderr
    assert lorad("model", "precision", "none", home=home).returncode == 1


def test_options_of_auto_are_refused_elsewhere(home: Path) -> None:
    answer = lorad("model", "add", "x", str(home / "source"), "--budget", "0.7", home=home)
    assert answer.returncode == 2
    assert "--budget goes with --format auto only" in answer.stderr


def test_a_budget_that_cannot_be_met_says_what_could(home: Path) -> None:
    answer = lorad(
        *("model", "add", "x", str(home / "source"), "--format", "auto", "--budget", "0.1"),
        home=home,
    )
    assert answer.returncode == 1
    assert "expected a budget of at least 0.56" in answer.stderr
    assert not (home / "models/x").exists()
