"""Our trainer as `trainer.run` sets it up, without checkpoints and versions.

The engine is `torch_cpu`, the method first order, every setting that isn't the task's the user's
default. A task's example without a shared start is packed like any other.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from bench.peers_channel import Channel
from bench.peers_task import Task
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.determinism import be_deterministic
from trainer.lora import LoraAdapter
from trainer.memory import MIB, Work
from trainer.methods.first_order import FirstOrder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.layout import matrices_multiplied_by
from trainer.optimizer import Optimizer
from trainer.plan import Choices, plan
from trainer.prefix_cache import PrefixCache
from trainer.prefix_files import PrefixFiles, prefix_name
from trainer.safetensors_file import SafetensorsFile
from trainer.spec import TrainingSettings

_CACHE_BYTES = 1 << 30
_DEFAULT_MEMORY = 1024 * MIB
"""The daemon's default budget."""


class Ours:
    """Everything loaded and ready to take steps."""

    def __init__(
        self,
        task: Task,
        format: str | None = None,
        recompute: bool | None = None,
        cache: Path | None = None,
        memory: int = _DEFAULT_MEMORY,
    ) -> None:
        """Open the weights and load the adapter.

        Args:
            task: what to train.
            format: of the weights; None is the base's own.
            recompute: as in TrainingSettings; None leaves it to the plan.
            cache: an empty folder for what the layers below the adapted ones give; None: it is
                computed at every step.
            memory: bytes that the plan has.
        """
        be_deterministic()
        self._task = task
        examples = dict.fromkeys(example for batch in task.batches for example in batch)
        self._numbers = {example: number for number, example in enumerate(examples)}
        path = task.weights[format or next(iter(task.weights))]
        weights = FrozenWeights.open(Path(path))
        config = DecoderConfig.from_json(weights.metadata["config"])
        options = EngineOptions(threads=task.threads)
        products = matrices_multiplied_by(config)
        self.engine: Engine = open_engine(weights, "torch_cpu", options, products=products)
        decoder = Decoder(config, weights, self.engine)
        adapter = LoraAdapter(config, rank=task.rank, alpha=task.alpha, layers=task.layers)
        start = SafetensorsFile(Path(task.adapter))
        adapter.load_arrays({key: start.load(key) for key in adapter.named_parameters()})
        prefix = None
        if cache is not None:
            below = adapter.layers.start
            name = prefix_name(weights.content_hash, below, self.engine.versions())
            files = PrefixFiles(cache, name, limit_bytes=_CACHE_BYTES)
            prefix = PrefixCache(decoder, below, files)
        self._optimizer = Optimizer(adapter, TrainingSettings(max_grad_norm=task.max_grad_norm))
        longest = max(len(one.prompt) + len(one.answer) for one in examples)
        work = Work.of(
            adapter,
            weights,
            self.engine,
            longest_example=longest,
            longest_evaluation=longest,
            examples=len(examples),
        )
        self._method = FirstOrder.by_plan(
            decoder,
            adapter,
            plan(work, memory, Choices(recompute=recompute)),
            None if prefix is None else prefix.rows,
        )

    def step(self, number: int) -> float:
        """One optimizer step on the task's batch of that number; its loss."""
        examples = [
            TokenExample(self._numbers[example], example.prompt, example.answer, "")
            for example in self._task.batches[number]
        ]
        loss = self._method.accumulate(examples).loss
        self._optimizer.step(self._task.learning_rate)
        return loss


def run(
    task: Task,
    channel: Channel,
    format: str | None = None,
    recompute: bool | None = None,
    cached: bool = False,
    memory: int = _DEFAULT_MEMORY,
) -> None:
    with tempfile.TemporaryDirectory(prefix="lorad-bench-prefix-") as folder:
        ours = Ours(task, format, recompute, Path(folder) if cached else None, memory)
        channel.ready(torch=torch.__version__, precision=ours.engine.report()["precision"])
        for step in channel.steps():
            channel.done(ours.step(step))
