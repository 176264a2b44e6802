"""The model that learns in the learning bench: the trainer's own parts, on `torch_cpu`.

What `trainer.run` does between loading and publishing, without checkpoints and versions: the same
tokens, order of the data, methods, optimizer, schedule and ruler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.learning_loop import take_steps
from bench.learning_rows import LabelledText
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.evaluate import TOKENS_AT_ONCE, answer_scores, passes
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.optimizer import Optimizer
from trainer.packing import common_prefix
from trainer.priors import Scores
from trainer.spec import TrainingSettings
from trainer.tokens import ChatTokenizer

Arrays = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class AdapterShape:
    """Of a LoRA adapter; `layers` counts from the top, None is all of them."""

    rank: int = 8
    alpha: float = 16.0
    layers: int | None = None


@dataclass(frozen=True)
class Trained:
    """An adapter and what it cost."""

    adapter: LoraAdapter
    losses: list[float]
    """Mean answer-token loss of each step."""
    tokens: int
    """Through the layers, forwards."""
    seconds: float
    """CPU time of this process."""

    def cost(self) -> dict[str, float]:
        """For the result."""
        return {
            "steps": len(self.losses),
            "tokens": self.tokens,
            "cpu_seconds": self.seconds,
            "last_losses": float(np.mean(self.losses[-8:])) if self.losses else float("nan"),
        }


@dataclass(frozen=True)
class Student:
    """One base model before one set of labels."""

    decoder: Decoder
    tokenizer: ChatTokenizer
    labels: tuple[str, ...]
    max_tokens: int
    """Of a prompt with its answer; a longer input loses its end."""

    @classmethod
    def load(
        cls, model_dir: Path, labels: tuple[str, ...], max_tokens: int, threads: int
    ) -> Student:
        """Of an added base model, with the weights as they are stored."""
        weights = FrozenWeights.open(model_dir / "weights.lorad")
        config = DecoderConfig.from_json(weights.metadata["config"])
        engine = create_engine("torch_cpu", weights.matrices, EngineOptions(threads=threads))
        tokenizer = ChatTokenizer.load(model_dir)
        return cls(Decoder(config, weights, engine), tokenizer, labels, max_tokens)

    def examples(self, rows: Sequence[LabelledText]) -> dict[int, TokenExample]:
        """The rows as tokens, numbered from 1."""
        found = {}
        for number, row in enumerate(rows, 1):
            encoded, _ = self.tokenizer.cut(row.input, row.label, self.max_tokens)
            found[number] = TokenExample(
                number, tuple(encoded.prompt), tuple(encoded.answer), row.label
            )
        return found

    def fresh(self, shape: AdapterShape, seed: int, start: Arrays | None = None) -> LoraAdapter:
        """An adapter that changes nothing yet, or one with the values of `start`."""
        adapter = LoraAdapter(
            self.decoder.config, rank=shape.rank, alpha=shape.alpha, layers=shape.layers, seed=seed
        )
        if start is not None:
            adapter.load_arrays(start)
        return adapter

    def train(
        self,
        adapter: LoraAdapter,
        rows: Sequence[LabelledText],
        settings: TrainingSettings,
        after_step: Callable[[int], None] = lambda step: None,
    ) -> Trained:
        """Train by first-order steps; `after_step(steps done)` isn't counted in the seconds."""
        method = FirstOrder(
            self.decoder,
            adapter,
            micro_batch_tokens=settings.micro_batch_tokens or TOKENS_AT_ONCE,
            recompute=False,  # there is memory here, and the numbers are the same
        )
        optimizer = Optimizer(adapter, settings)

        def step(batch: list[TokenExample], rate: float) -> tuple[float, int]:
            result = method.accumulate(batch)
            optimizer.step(rate)
            return result.loss, result.tokens

        peak = settings.peak_learning_rate(settings.total_steps(len(rows)))
        return Trained(adapter, *take_steps(self.examples(rows), settings, peak, step, after_step))

    def scores(self, adapter: LoraAdapter | None, rows: Sequence[LabelledText]) -> Scores:
        """Log-likelihood of every label (and the end token) after each row's prompt."""
        answers = {label: self.tokenizer.answer_ids(label) for label in self.labels}
        examples = list(self.examples(rows).values())
        shared = common_prefix([example.prompt for example in examples])
        branches = sum(len(answer) - 1 for answer in answers.values())
        found: list[list[float]] = []
        for _, part in passes(examples, shared, branches, TOKENS_AT_ONCE):
            found += self._scored(adapter, part, shared, answers)
        return np.array(found).reshape(len(examples), len(self.labels))

    def _scored(
        self,
        adapter: LoraAdapter | None,
        part: Sequence[TokenExample],
        shared: int,
        answers: Mapping[str, Sequence[int]],
    ) -> list[list[float]]:
        rows = answer_scores(self.decoder, adapter, part, shared, answers)
        return [[row[label] for label in self.labels] for row in rows]
