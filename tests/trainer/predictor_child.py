"""A home with versions of adapters, and the process that answers, as the daemon starts it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from npu.weights import FrozenWeights
from service.child_process import ALLOCATOR
from tests.trainer.child import Child
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.publishing import publish_version

LABELS = ["now", "later", "mute"]


def make_adapter(config: DecoderConfig, seed: int, **shape: Any) -> LoraAdapter:
    """An adapter that changes much: lora_B at zero would change nothing."""
    adapter = LoraAdapter(config, **{"rank": 4, "alpha": 8.0, "seed": seed, **shape})
    adapter.randomise(torch.Generator().manual_seed(seed), 0.3)
    return adapter


def add_version(home: Path, number: int, model: str = "tiny", **shape: Any) -> str:
    """Publish a random adapter on the model; the version's folder."""
    weights = FrozenWeights.open(home / "models" / model / "weights.lorad")
    config = DecoderConfig.from_json(weights.metadata["config"])
    path = Path(f"adapters/1/versions/run-{number:08d}")
    manifest = {"base_model": model, "base_hash": weights.content_hash}
    publish_version(home, path, make_adapter(config, number, **shape), manifest)
    return str(path)


def label_question(home: Path, version: str | None, *inputs: str, **changes: Any) -> dict[str, Any]:
    """Without an id."""
    asked = {"inputs": list(inputs), "labels": LABELS, "too_long": "refuse", "max_tokens": 256}
    return {"op": "labels", **_head(home, version), **asked, "prior": None, **changes}


def text_question(home: Path, version: str | None, text: str, **changes: Any) -> dict[str, Any]:
    """Without an id; greedy."""
    asked = {"messages": [{"role": "user", "content": text}], "temperature": 0.0, "top_p": 1.0}
    asked |= {"max_tokens": 24, "stop": [], "seed": 0, "stream": False}
    return {"op": "text", **_head(home, version), **asked, **changes}


def _head(home: Path, version: str | None) -> dict[str, Any]:
    (model,) = (home / "models").iterdir()
    manifest = json.loads((model / "manifest.json").read_text())
    return {
        "model": model.name,
        "base_hash": manifest["base_hash"],
        "version": version,
        "engine": {"engine": "torch_cpu", "threads": 1},
    }


class PredictorChild(Child):
    """A running `python -m trainer.predictor`."""

    def __init__(self, home: Path, *options: str, **environment: str) -> None:
        super().__init__(
            home / "predictor.log",
            *("trainer.predictor", str(home), "--memory-mb", "1024", *options),
            seconds=120,
            environment=ALLOCATOR | os.environ | environment,
        )
        self._ids = itertools.count(1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for event in super().__iter__():
            if event["event"] != "answering":  # a busy machine's sign of life
                yield event

    def send(self, question: Mapping[str, Any]) -> int:
        """Ask; the question's id."""
        number = next(self._ids)
        self.write(json.dumps({"id": number, **question}).encode() + b"\n")
        return number

    def until_over(self, number: int) -> list[dict[str, Any]]:
        """The events of a question up to its last one."""
        seen = []
        for event in self:
            if event.get("id") == number:
                seen.append(event)
                if event["event"] in ("answer", "refused", "cancelled"):
                    return seen
        raise AssertionError(f"no end of {number}; log:\n{self.log_text()}")

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The last event of a question."""
        return self.until_over(self.send(question))[-1]

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Close its standard input; its exit code, and what it still said."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()
