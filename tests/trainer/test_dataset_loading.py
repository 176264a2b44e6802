"""Loading a run's examples: one short transaction, and no text in what is said when it fails."""

from __future__ import annotations

import sqlite3
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.database import Database
from tests.trainer.workers import LABELS, fill, send_again
from trainer import worker
from trainer.dataset import DatasetError, load_dataset
from trainer.spec import RunSpec, TrainingSettings
from trainer.tokens import ChatTokenizer, EncodedExample

SPEC = RunSpec(
    run_id=1,
    adapter_id=1,
    method="first_order",
    model_name="tiny",
    base_hash="sha256:aa",
    rank=2,
    alpha=4.0,
    targets=("q_proj",),
    use_rslora=False,
    labels=tuple(LABELS),
    max_tokens=256,
    train_example_ids=(1, 2, 3),
    holdout_example_ids=(49, 50),
    active_version=None,
    training=TrainingSettings(),
    engine="torch_cpu",
    threads=1,
)


class Truncating(ChatTokenizer):
    """Truncates the write-ahead log from another connection whenever it encodes."""

    def __init__(self, path: Path) -> None:
        self.path, self.busy = path, []  # type: list[int]

    def cut(self, text: str, label: str, max_tokens: int) -> tuple[EncodedExample, int]:
        with sqlite3.connect(self.path, isolation_level=None) as connection:
            connection.execute("UPDATE adapters SET revision = revision + 1")
            row = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.close()
        self.busy.append(row[0])
        return EncodedExample([1], [2]), 0


class Quoting(ChatTokenizer):
    """Fails quoting what it was given, as a chat template's own words may."""

    def __init__(self) -> None:
        pass

    def cut(self, text: str, label: str, max_tokens: int) -> tuple[EncodedExample, int]:
        raise ValueError(f"can't encode {text} {label}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path)
    return tmp_path / "lorad.db"


def load(path: Path, tokenizer: ChatTokenizer, spec: RunSpec = SPEC) -> Any:
    with Database.open_readonly(path) as database:
        return load_dataset(database, spec, tokenizer)


def test_the_log_can_be_truncated_while_the_texts_are_encoded(path: Path) -> None:
    with Database(path):  # as the daemon, which keeps the log in being
        tokenizer = Truncating(path)
        load(path, tokenizer)
    assert tokenizer.busy == [0] * 5


def test_a_text_that_cannot_be_encoded_is_named_by_its_id(path: Path) -> None:
    with pytest.raises(DatasetError, match="example 1 to fit") as caught:
        load(path, Quoting())
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_a_text_that_is_no_utf_8_is_not_quoted(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE examples SET input = CAST(x'63616e617279ff' AS TEXT)")
    connection.close()
    with pytest.raises(DatasetError, match=r"check lorad\.db") as caught:
        load(path, Quoting())
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_a_label_the_run_does_not_know_is_left_out(path: Path, tiny: ChatTokenizer) -> None:
    send_again(path.parent, 2, "another text", "archive")
    data = load(path, tiny)
    assert (list(data.train), list(data.holdout)) == ([1, 3], [49, 50])
    assert list(data.changed_at) == [1, 3, 49, 50]
    free = load(path, tiny, replace(SPEC, labels=None))
    assert list(free.train) == [1, 2, 3]


@pytest.mark.parametrize("error", [KeyError("canary"), UnicodeDecodeError("utf-8", b"c", 0, 1, "")])
def test_an_error_whose_message_is_a_value_is_known_by_its_name(error: Exception) -> None:
    assert type(error).__name__ in worker._sentence(error)
    assert "canary" not in worker._sentence(error)
    assert worker._sentence(ValueError("expected a\n b")) == "expected a b"
