"""The same training for every precision: the trainer's own parts, on `torch_cpu`, in this process.

What `trainer.run` does between loading and publishing, without checkpoints and versions: the same
order of the data, method, optimizer, schedule and ruler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from service.demo.rows import Row, RowSet
from trainer.dataset import TokenExample, batch_ids
from trainer.evaluate import evaluate
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.decoder import Decoder
from trainer.optimizer import Optimizer, learning_rate_at
from trainer.spec import TrainingSettings
from trainer.tokens import ChatTokenizer

RANK, ALPHA = 8, 16.0
MAX_TOKENS = 512
_GRADIENT_SEED = 1
_RANDOM_B = 0.01
"""lora_B's standard deviation where gradients are measured: at zero all of lora_A's are zero."""


@dataclass(frozen=True)
class Task:
    """Rows as tokens, and how they are trained on."""

    train: dict[int, TokenExample]
    holdout: dict[int, TokenExample]
    labels: tuple[str, ...]
    answers: dict[str, list[int]]
    settings: TrainingSettings
    digest: str
    """Of the tokens and the settings but for the seed: figures of other tasks can't be compared."""

    @classmethod
    def of_rows(cls, rows: RowSet, tokenizer: ChatTokenizer, settings: TrainingSettings) -> Task:
        """Number the rows in their order and encode them."""
        numbered = [
            (row.split, _encode(number, row, tokenizer)) for number, row in enumerate(rows.rows, 1)
        ]
        content = {
            "examples": [[split, e.prompt, e.answer] for split, e in numbered],
            "settings": {k: v for k, v in asdict(settings).items() if k != "seed"},
            "adapter": [RANK, ALPHA],
        }
        return cls(
            train={e.id: e for split, e in numbered if split == "train"},
            holdout={e.id: e for split, e in numbered if split == "holdout"},
            labels=tuple(rows.labels),
            answers={label: tokenizer.answer_ids(label) for label in rows.labels},
            settings=settings,
            digest=hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16],
        )

    @property
    def steps(self) -> int:
        """Optimizer steps of one training."""
        return self.settings.total_steps(len(self.train))


def _encode(number: int, row: Row, tokenizer: ChatTokenizer) -> TokenExample:
    encoded, _ = tokenizer.cut(row.input, row.label, MAX_TOKENS)
    return TokenExample(number, tuple(encoded.prompt), tuple(encoded.answer), row.label)


def train(
    decoder: Decoder, task: Task, progress: Callable[[int, float], None]
) -> dict[str, float | None]:
    """Train a fresh adapter and measure it: holdout loss per label token, label NLL, accuracy.

    `progress(step, loss)` is called after every step.
    """
    settings = task.settings
    adapter = LoraAdapter(decoder.config, rank=RANK, alpha=ALPHA, seed=settings.seed)
    method = _method(decoder, adapter, settings)
    optimizer = Optimizer(adapter, settings)
    peak = settings.peak_learning_rate(task.steps)
    ids = list(task.train)
    loss = 0.0
    for step in range(task.steps):
        chosen = batch_ids(ids, settings.seed, settings.batch_size, step)
        loss = method.accumulate([task.train[i] for i in chosen]).loss
        optimizer.step(learning_rate_at(step, task.steps, peak, settings))
        progress(step + 1, loss)
    measured = evaluate(decoder, adapter, task.holdout, task.answers)
    labels = {number: example.label for number, example in task.holdout.items()}
    return {**measured.summary(labels), "last_training_loss": loss}


def adapter_gradients(decoder: Decoder, task: Task, examples: int) -> dict[str, torch.Tensor]:
    """Gradients fp64 by PEFT key of the mean loss over real examples, lora_B random.

    The examples are spread over the training side, `examples` of them.
    """
    adapter = LoraAdapter(decoder.config, rank=RANK, alpha=ALPHA, seed=_GRADIENT_SEED)
    generator = torch.Generator().manual_seed(_GRADIENT_SEED)
    adapter.randomise(generator, _RANDOM_B)
    chosen = spread(list(task.train.values()), examples)
    _method(decoder, adapter, task.settings).accumulate(chosen)
    return {key: value.double() for key, value in adapter.named_gradients().items()}


def gradient_difference(
    found: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """How far all adapter gradients, as one vector, are from the reference's, and the worst tensor.

    `change` is the relative Euclidean distance, `cosine` that of the angle between the two.
    """
    here = torch.cat([found[key].flatten() for key in reference])
    there = torch.cat([value.flatten() for value in reference.values()])
    changes = {key: float((found[key] - g).norm() / g.norm()) for key, g in reference.items()}
    worst = max(changes, key=changes.__getitem__)
    return {
        "change": float((here - there).norm() / there.norm()),
        "cosine": float(here @ there / (here.norm() * there.norm())),
        "worst_change": changes[worst],
        "worst_tensor": worst,
    }


def spread(examples: Sequence[TokenExample], count: int) -> list[TokenExample]:
    """At most `count` of them at equal distances."""
    count = min(count, len(examples))
    return [examples[place * len(examples) // count] for place in range(count)]


def _method(decoder: Decoder, adapter: LoraAdapter, settings: TrainingSettings) -> FirstOrder:
    return FirstOrder(
        decoder,
        adapter,
        micro_batch_tokens=settings.micro_batch_tokens or 512,
        recompute=settings.recompute is not False,
    )
