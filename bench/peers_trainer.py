"""PEFT as it is used: transformers' own Trainer and its padding collator, all else by default.

Stepping it from outside is a callback that waits where the Trainer begins a step; fetching and
collating the batch, which comes before that, is not counted.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.peers_channel import Channel
from bench.peers_peft import load_model, versions
from bench.peers_task import Task


class _Watched(transformers.Trainer):
    """A Trainer that remembers a step's loss."""

    last_loss = float("nan")

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        self.last_loss = float(loss)
        return loss


class _Gate(transformers.TrainerCallback):
    """Holds every step until it is asked for."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.trainer: _Watched | None = None

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._channel.begin()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        assert self.trainer is not None
        self._channel.done(self.trainer.last_loss)


def run(task: Task, channel: Channel) -> None:
    with tempfile.TemporaryDirectory(prefix="lorad-bench-trainer-") as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=len(task.batches[0]),
            max_steps=len(task.batches),
            learning_rate=task.learning_rate,
            lr_scheduler_type="constant",
            max_grad_norm=task.max_grad_norm,
            train_sampling_strategy="sequential",
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        gate = _Gate(channel)
        trainer = _Watched(
            model=load_model(task),
            args=arguments,
            train_dataset=[
                {"input_ids": e.ids, "attention_mask": [1] * len(e.ids), "labels": e.labels}
                for batch in task.batches
                for e in batch
            ],
            data_collator=transformers.DataCollatorForSeq2Seq(_tokenizer(task)),
            callbacks=[gate],
        )
        gate.trainer = trainer
        channel.ready(**versions())
        trainer.train()


def _tokenizer(task: Task) -> Any:
    """Only for padding: the collator asks it for the pad token and the side."""
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_file=str(Path(task.base) / "tokenizer.json"), padding_side="right")
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    return tokenizer
