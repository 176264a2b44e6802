"""Our trainer as `trainer.run` sets it up, without checkpoints and versions.

The engine is `torch_cpu`, the method first order, every setting that isn't the task's the user's
default. A task's example without a shared start is packed like any other.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from bench.peers_channel import Channel
from bench.peers_task import Task
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.layout import matrices_multiplied_by
from trainer.optimizer import Optimizer
from trainer.safetensors_file import SafetensorsFile
from trainer.spec import TrainingSettings


class Ours:
    """Everything loaded and ready to take steps."""

    def __init__(
        self, task: Task, format: str | None = None, recompute: bool | None = None
    ) -> None:
        """Open the weights of `format` (default: the base's own), load the adapter.

        `recompute` None is the user's default.
        """
        self._task = task
        path = task.weights[format or next(iter(task.weights))]
        weights = FrozenWeights.open(Path(path))
        config = DecoderConfig.from_json(weights.metadata["config"])
        options = EngineOptions(threads=task.threads)
        products = matrices_multiplied_by(config)
        self.engine: Engine = open_engine(weights, "torch_cpu", options, products=products)
        adapter = LoraAdapter(config, rank=task.rank, alpha=task.alpha)
        start = SafetensorsFile(Path(task.adapter))
        adapter.load_arrays({key: start.load(key) for key in adapter.named_parameters()})
        settings = TrainingSettings(max_grad_norm=task.max_grad_norm)
        if recompute is not None:
            settings = dataclasses.replace(settings, recompute=recompute)
        self._optimizer = Optimizer(adapter, settings)
        self._method = FirstOrder(
            Decoder(config, weights, self.engine),
            adapter,
            micro_batch_tokens=settings.micro_batch_tokens,
            recompute=settings.recompute,
        )

    def step(self, number: int) -> float:
        """One optimizer step on the task's batch of that number; its loss."""
        examples = [
            TokenExample(index, example.prompt, example.answer, "")
            for index, example in enumerate(self._task.batches[number])
        ]
        loss = self._method.accumulate(examples).loss
        self._optimizer.step(self._task.learning_rate)
        return loss


def run(
    task: Task, channel: Channel, format: str | None = None, recompute: bool | None = None
) -> None:
    ours = Ours(task, format, recompute)
    channel.ready(torch=torch.__version__, precision=ours.engine.report()["precision"])
    for step in channel.steps():
        channel.done(ours.step(step))
