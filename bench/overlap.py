"""What the CPU computes while the engine computes: one training step, drawn and in JSON.

    python -m bench.overlap [--engine qnn] [--model HOME/models/NAME] [--json]

A random model of two layers (or a real one), adapters on all linears, one step of forward,
recomputation and backward. For every adapted product: when the engine's thread worked on it, when
the CPU worked on the adapter's part, and how much of that part lay behind it. The same step is then
timed with the overlap on and off in turn, and every loss and gradient compared bit for bit.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from bench.random_weights import write_random_weights
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction, Product
from npu.opening import open_engine
from npu.pending_product import PendingProduct
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder

SHOWS = (
    "the order of the work, on which thread, that nothing waits before it must, and that the "
    "results are the same bits"
)
DOES_NOT_SHOW = (
    "speed: emulator and onnxruntime's CPU provider compute on the cores that the adapter's "
    "products want too; how much of a step a phone saves is unknown until one has run it"
)
_COLUMNS = 60

CONFIG = DecoderConfig(
    family="llama",
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    vocab_size=512,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    tie_word_embeddings=True,
    max_position_embeddings=512,
)


@dataclass
class Event:
    """One product; times in seconds of time.perf_counter."""

    matrix: str
    product: Product
    begun: float = 0.0
    """When `begin` returned, and the CPU could go on."""
    wanted: float = 0.0
    """When the CPU had done its part and asked for the result."""
    started: float = 0.0
    ended: float = 0.0
    thread: str = ""

    @property
    def hidden(self) -> float:
        """Seconds of the CPU's part that passed while the engine worked on the product."""
        return max(0.0, min(self.wanted, self.ended) - max(self.begun, self.started))


class Watched:
    """A pending product that notes when its result was wanted."""

    def __init__(self, pending: PendingProduct, event: Event) -> None:
        self._pending, self._event = pending, event

    def result(self) -> torch.Tensor:
        self._event.wanted = self._event.wanted or time.perf_counter()
        return self._pending.result()

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pending.__exit__(kind, error, trace)


@dataclass
class Trace:
    """The products of an engine, as they come and go."""

    events: list[Event] = field(default_factory=list)

    def watch(self, engine: Engine) -> None:
        """Note every product of `engine` from now on."""
        waiting: collections.deque[Event] = collections.deque()
        begin, compute = engine.begin, engine.compute

        def watched_begin(product: Product, matrix: str, a: torch.Tensor) -> Watched:
            event = Event(matrix, product)
            waiting.append(event)
            self.events.append(event)
            pending = begin(product, matrix, a)
            event.begun = time.perf_counter()
            return Watched(pending, event)

        def watched_compute(
            matrix: FrozenMatrix, direction: Direction, a: torch.Tensor
        ) -> torch.Tensor:
            event = waiting.popleft()
            assert event.matrix == matrix.name
            event.thread, event.started = threading.current_thread().name, time.perf_counter()
            try:
                return compute(matrix, direction, a)
            finally:
                event.ended = time.perf_counter()

        setattr(engine, "begin", watched_begin)  # noqa: B010  (methods, which mypy guards)
        setattr(engine, "compute", watched_compute)  # noqa: B010


class Step:
    """One training step on one engine, as often as wanted, always from the same adapter."""

    def __init__(self, weights: FrozenWeights, engine: Engine, options: argparse.Namespace) -> None:
        config = DecoderConfig.from_json(weights.metadata["config"])
        self.engine = engine
        self._adapter = LoraAdapter(config, rank=options.rank, alpha=2.0 * options.rank, seed=0)
        generator = torch.Generator().manual_seed(1)
        self._adapter.randomise(generator, 0.05)
        shape = (options.tokens + 1,)
        ids = torch.randint(20, config.vocab_size, shape, generator=generator).tolist()
        self._batch = [TokenExample(1, tuple(ids[:-2]), tuple(ids[-2:]), "")]
        self._method = FirstOrder(
            Decoder(config, weights, engine),
            self._adapter,
            micro_batch_tokens=options.tokens,
            recompute=True,
        )

    def run(self) -> tuple[float, list[bytes]]:
        """Seconds of a step; its loss and every gradient, as bytes."""
        started = time.perf_counter()
        loss = self._method.accumulate(self._batch).loss
        seconds = time.perf_counter() - started
        gradients = self._adapter.named_gradients().values()
        return seconds, [np.float64(loss).tobytes(), *(one.numpy().tobytes() for one in gradients)]


def measure(weights: FrozenWeights, options: argparse.Namespace) -> dict[str, Any]:
    """The trace of a step, and the same step timed with the overlap on and off in turn."""
    steps = {
        overlap: Step(
            weights,
            open_engine(
                weights,
                options.engine,
                EngineOptions(threads=1, form=options.form, overlap=overlap),
            ),
            options,
        )
        for overlap in (True, False)
    }
    for step in steps.values():
        step.run()  # compiles the graphs
    seconds: dict[bool, list[float]] = {True: [], False: []}
    results = []
    for _ in range(options.rounds):
        for overlap, step in steps.items():
            took, found = step.run()
            seconds[overlap].append(took)
            results.append(found)
    trace = Trace()
    trace.watch(steps[True].engine)
    results.append(steps[True].run()[1])
    ratios = [off / on for on, off in zip(seconds[True], seconds[False], strict=True)]
    adapted = [event for event in trace.events if event.matrix.startswith("layers.")]
    report = steps[True].engine.report()
    for step in steps.values():
        step.engine.close()
    cpu = sum(event.wanted - event.begun for event in adapted)
    start = trace.events[0].begun
    return {
        "engine": report["engine"],
        "why": report["why"],
        "device": report["device"],
        "form": report["form"],
        "tokens": options.tokens,
        "rank": options.rank,
        "bitwise_equal": all(found == results[0] for found in results),
        "compared": {"runs": len(results), "tensors": len(results[0]) - 1},
        "threads": sorted({event.thread for event in adapted}),
        "cpu_milliseconds": cpu * 1e3,
        "cpu_share_hidden": sum(event.hidden for event in adapted) / cpu,
        "seconds_on": statistics.median(seconds[True]),
        "seconds_off": statistics.median(seconds[False]),
        "ratio_off_to_on": statistics.median(ratios),
        "fallbacks": report["fallbacks"],
        "shows": SHOWS,
        "does_not_show": DOES_NOT_SHOW,
        "trace": [describe(event, start) for event in adapted],
    }


def describe(event: Event, start: float) -> dict[str, Any]:
    """An event in milliseconds since the step's first product was begun."""
    cpu = event.wanted - event.begun
    return {
        "linear": event.matrix,
        "product": event.product,
        "thread": event.thread,
        "engine": [(event.started - start) * 1e3, (event.ended - start) * 1e3],
        "cpu": [(event.begun - start) * 1e3, (event.wanted - start) * 1e3],
        "cpu_share_hidden": event.hidden / cpu if cpu > 0 else None,
    }


def time_line(events: Sequence[dict[str, Any]]) -> list[str]:
    """A line for the engine and one for the CPU per product, over the time all of them take."""
    begin = min(min(event["engine"][0], event["cpu"][0]) for event in events)
    end = max(max(event["engine"][1], event["cpu"][1]) for event in events)

    def bar(span: Sequence[float], mark: str) -> str:
        first, last = ((at - begin) / (end - begin) * (_COLUMNS - 1) for at in span)
        width = max(1, round(last) - round(first))
        drawn: str = " " * round(first) + mark * width
        return drawn[:_COLUMNS].ljust(_COLUMNS)

    lines: list[str] = []
    for event in events:
        name = event["linear"].rpartition(".")[2]
        engine, cpu = event["engine"], event["cpu"]
        share = event["cpu_share_hidden"]
        lines += [
            f"  {name:13} engine |{bar(engine, '█')}| {engine[1] - engine[0]:8.2f} ms",
            f"  {'':13} cpu    |{bar(cpu, '▒')}| {cpu[1] - cpu[0]:8.2f} ms"
            + ("" if share is None else f", {share:.0%} hidden"),
        ]
    return lines


def drawing(result: dict[str, Any]) -> str:
    """The top layer's passes, and the figures of the whole step."""
    ratio = float(result["ratio_off_to_on"])
    layer = max(int(event["linear"].split(".")[1]) for event in result["trace"])
    lines: list[str] = []
    passes: tuple[Product, ...] = ("forward", "recompute", "input_gradient")
    for product in passes:
        events = [
            event
            for event in result["trace"]
            if event["product"] == product and event["linear"].startswith(f"layers.{layer}.")
        ]
        lines += [f"layer {layer}, {product}:", *time_line(events), ""]
    lines += [
        f"engine {result['engine']} ({result['device']}), form {result['form']}, {result['why']}",
        f"{len(result['trace'])} products with an adapter, on {', '.join(result['threads'])}",
        f"the adapters' part of them: {result['cpu_milliseconds']:.1f} ms of the CPU, "
        f"{result['cpu_share_hidden']:.0%} of it while the engine worked",
        f"a step takes {result['seconds_on']:.3f} s, {result['seconds_off']:.3f} s one after the "
        f"other: {ratio:.2f} times as long",
        f"loss and {result['compared']['tensors']} gradients of {result['compared']['runs']} runs "
        + ("are the same bits" if result["bitwise_equal"] else "DIFFER"),
        f"This shows {result['shows']}.",
        f"It does not show {result['does_not_show']}.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the trace; 0 if the results were the same bits, and on the engine asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.overlap", description=__doc__)
    parser.add_argument("--engine", choices=["qnn", "onnx_cpu", "torch_cpu"], default="qnn")
    parser.add_argument("--form", choices=["auto", "inputs", "table"], default="inputs")
    parser.add_argument("--model", type=Path, help="a model's folder; a small random one if absent")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with ExitStack() as stack:
        if options.model is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lorad-overlap-")))
            # In fp16, which the emulator computes fastest.
            write_random_weights(folder / "weights.lorad", CONFIG, "fp16")
        else:
            folder = options.model
        result = measure(FrozenWeights.open(folder / "weights.lorad"), options)
    print(json.dumps(result, indent=2) if options.json else drawing(result))
    return 0 if result["bitwise_equal"] and result["engine"] == options.engine else 1


if __name__ == "__main__":
    raise SystemExit(main())
