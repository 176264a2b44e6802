"""`lorad demo` refuses what it can't play before it starts anything."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from service.cli import demo as command
from service.demo import play
from service.demo.children import Household

app = typer.Typer()
app.command()(command.demo)


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise AssertionError("the demo started a child")

    monkeypatch.setattr(Household, "_start", start)


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert not isinstance(result.exception, AssertionError)
    return result.exit_code, result.output


def test_a_bad_line_is_named_and_the_code_is_1(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"input": "t"}\n')
    code, said = invoke("--data", str(path))
    assert code == 1
    assert "line 1: label must be text" in said
    assert "Traceback" not in said


def test_a_folder_with_something_in_it_is_not_taken_for_keep(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    code, said = invoke("--keep", str(tmp_path))
    assert code == 1
    assert "new or empty folder" in said


@pytest.mark.parametrize("arguments", [("--engine", "gpu"), ("--steps", "0"), ("--seed", "-1")])
def test_options_out_of_range_are_refused(arguments: tuple[str, str]) -> None:
    assert invoke(*arguments)[0] == 2


def test_the_training_asked_for_is_what_the_options_say() -> None:
    built_in = play.training_options(True, False, 3, None, None)
    assert built_in == {"seed": 3, **play.BUILT_IN}
    assert play.training_options(True, False, 0, 7, 1e-4) == {
        "seed": 0,
        "batch_size": play.BUILT_IN["batch_size"],
        "steps": 7,
        "learning_rate": 1e-4,
    }
    assert play.training_options(False, False, 0, None, None) == {"seed": 0}
    assert play.training_options(True, True, 0, None, None)["steps"] == play.TINY_STEPS
    json.dumps(built_in)


def test_the_adapter_stays_where_it_is_said_to_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("adapter_config.json", "{}")
    for keep in (None, tmp_path / "kept"):
        folder = Path(play.unpack_adapter(packed.getvalue(), keep))
        assert (folder / "adapter_config.json").read_text() == "{}"
        assert folder.is_relative_to(tmp_path / ("elsewhere" if keep is None else "kept"))
