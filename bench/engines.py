"""How near an engine's frozen products come to the machine's sgemm, shape by shape.

    GOMP_SPINCOUNT=10000 python -m bench.engines --format int4_min int8 fp16 --rows 64 256 512

For every format and number of rows: each product of a layer, the layer as the sum of its products,
the head, and all layers in turn, forwards and back, whose weights have left the cache meanwhile.
Every round times the engine and plain fp32 sgemm on dequantised weights, with all threads and with
one, in turn, so that other load on the machine hits all of them; the best round of each counts.

Prints JSON. `gflops` are 2 * rows * N * K a nanosecond; `bound` is the one-thread sgemm times the
threads, `share` what the engine reaches of it, and `ratio` its speed beside sgemm with all threads
(1.0: as fast, without its 4 bytes a weight). `cpu_share` compares the processor time of all threads
with that of the one-thread sgemm: all a busy machine can tell, where two threads don't run at once.
GOMP_SPINCOUNT is the training process's own setting.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.ledger import Direction
from npu.quantize import quantize
from npu.weight_layout import WeightFormat
from npu.weights import FrozenMatrix


@dataclass(frozen=True)
class Model:
    """Shapes (N, K) of one layer's products, how many layers there are, and the head."""

    layer: dict[str, tuple[int, int]]
    layers: int
    head: tuple[int, int]


MODELS = {
    "SmolLM2-135M": Model(
        {
            "qkv_proj": (960, 576),
            "o_proj": (576, 576),
            "gate_up_proj": (3072, 576),
            "down_proj": (576, 1536),
        },
        30,
        (49_152, 576),
    ),
    "Qwen2.5-0.5B": Model(
        {
            "qkv_proj": (1152, 896),
            "o_proj": (896, 896),
            "gate_up_proj": (9728, 896),
            "down_proj": (896, 4864),
        },
        24,
        (151_936, 896),
    ),
}


@dataclass
class Timing:
    """Operations, and the best seconds of the engine, of sgemm, and of sgemm with one thread."""

    operations: float
    wall: list[float]
    cpu: list[float]
    """The same of processor time, of all threads."""

    def __add__(self, other: Timing) -> Timing:
        return Timing(
            self.operations + other.operations,
            [a + b for a, b in zip(self.wall, other.wall, strict=True)],
            [a + b for a, b in zip(self.cpu, other.cpu, strict=True)],
        )

    def summary(self, threads: int) -> dict[str, float]:
        ours, sgemm, alone = (self.operations / seconds / 1e9 for seconds in self.wall)
        return {
            "milliseconds": round(self.wall[0] * 1e3, 3),
            "gflops": round(ours, 1),
            "sgemm": round(sgemm, 1),
            "bound": round(alone * threads, 1),
            "share": round(ours / (alone * threads), 3),
            "cpu_share": round(self.cpu[2] / self.cpu[0], 3),
            "ratio": round(ours / sgemm, 3),
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engines", description=__doc__)
    parser.add_argument("--engine", choices=get_args(EngineName), default="torch_cpu")
    parser.add_argument("--model", choices=MODELS, default="SmolLM2-135M")
    formats = get_args(WeightFormat)
    parser.add_argument("--format", choices=formats, nargs="+", default=["int4_min", "int8"])
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--head-rows", type=int, default=64, help="0: without the head")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--passes", type=int, default=3, help="through all layers; 0: none")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    results = []
    for format in given.format:
        results += measure_format(MODELS[given.model], format, given)
    json.dump(
        {
            "engine": given.engine,
            "model": given.model,
            "threads": given.threads,
            "gomp_spincount": os.environ.get("GOMP_SPINCOUNT"),
            "torch": torch.__version__,
            "results": results,
        },
        sys.stdout,
        indent=2,
    )
    print()
    return 0


def measure_format(
    model: Model, format: WeightFormat, given: argparse.Namespace
) -> list[dict[str, object]]:
    """One entry per number of rows, then one for the head."""
    options = EngineOptions(threads=given.threads)
    layers = range(model.layers if given.passes else 1)
    matrices = {
        f"{layer}.{name}": random_matrix(f"{layer}.{name}", format, shape, seed=layer)
        for layer in layers
        for name, shape in model.layer.items()
    }
    engine = create_engine(given.engine, matrices, options)
    # A copy of one layer's fp32 would stay in the cache, where the engine's codes don't.
    weights = {name: torch.from_numpy(matrix.dequantize()) for name, matrix in matrices.items()}
    results: list[dict[str, object]] = []
    for rows in given.rows:
        entry: dict[str, object] = {"format": format, "rows": rows}
        total: Timing | None = None
        for name in model.layer:
            both = [
                measure(engine, f"0.{name}", weights, direction, rows, given.rounds)
                for direction in get_args(Direction)
            ]
            for direction, timing in zip(get_args(Direction), both, strict=True):
                entry[f"{name} {direction}"] = timing.summary(given.threads)
                total = timing if total is None else total + timing
        assert total is not None
        entry["layer"] = total.summary(given.threads)
        if given.passes:
            entry[f"{model.layers} layers"] = measure_pass(
                engine, weights, rows, given.passes
            ).summary(given.threads)
        results.append(entry)
    engine.close()
    if given.head_rows:
        results.append(measure_head(model, format, given))
    return results


def measure_head(
    model: Model, format: WeightFormat, given: argparse.Namespace
) -> dict[str, object]:
    matrix = random_matrix("head", format, model.head, seed=0)
    engine = create_engine(given.engine, {"head": matrix}, EngineOptions(threads=given.threads))
    weights = {"head": torch.from_numpy(matrix.dequantize())}
    entry: dict[str, object] = {"format": format, "rows": given.head_rows}
    for direction in get_args(Direction):
        timing = measure(engine, "head", weights, direction, given.head_rows, given.rounds)
        entry[f"head {direction}"] = timing.summary(given.threads)
    engine.close()
    return entry


def random_matrix(
    name: str, format: WeightFormat, shape: tuple[int, int], *, seed: int
) -> FrozenMatrix:
    generator = np.random.default_rng(seed)
    quantized = quantize(generator.standard_normal(shape, np.float32), format)
    return FrozenMatrix(name, format, quantized.codes, quantized.scale, quantized.offset)


def measure(
    engine: Engine,
    name: str,
    weights: dict[str, torch.Tensor],
    direction: Direction,
    rows: int,
    rounds: int,
) -> Timing:
    W = weights[name]
    a = torch.randn(rows, W.shape[direction == "forward"])
    contestants = [
        lambda: product(engine, name, direction, a),
        lambda: torch.mm(a, W.t() if direction == "forward" else W),
    ]
    return Timing(2.0 * rows * W.numel(), *race(contestants, rounds))


def measure_pass(
    engine: Engine, weights: dict[str, torch.Tensor], rows: int, rounds: int
) -> Timing:
    """All products forwards in the order of the layers, then the gradients in the other."""
    operands = {width: torch.randn(rows, width) for W in weights.values() for width in W.shape}

    def ours() -> None:
        for name, W in weights.items():
            product(engine, name, "forward", operands[W.shape[1]])
        for name, W in reversed(weights.items()):
            product(engine, name, "input_gradient", operands[W.shape[0]])

    def sgemm() -> None:
        for W in weights.values():
            torch.mm(operands[W.shape[1]], W.t())
        for W in reversed(weights.values()):
            torch.mm(operands[W.shape[0]], W)

    operations = 4.0 * rows * sum(W.numel() for W in weights.values())
    return Timing(operations, *race([ours, sgemm], rounds))


def product(engine: Engine, name: str, direction: Direction, a: torch.Tensor) -> torch.Tensor:
    return engine.forward(name, a) if direction == "forward" else engine.input_gradient(name, a)


def race(
    contestants: Sequence[Callable[[], object]], rounds: int
) -> tuple[list[float], list[float]]:
    """Best seconds of each and, at the end, of the last one with a single thread; in turn.

    Then the same of processor time.
    """
    threads = torch.get_num_threads()
    runs = [*((run, threads) for run in contestants), (contestants[-1], 1)]
    wall = [float("inf")] * len(runs)
    cpu = [float("inf")] * len(runs)
    for _ in range(rounds + 1):
        for index, (run, count) in enumerate(runs):
            torch.set_num_threads(count)
            worked, started = time.process_time(), time.perf_counter()
            run()
            wall[index] = min(wall[index], time.perf_counter() - started)
            cpu[index] = min(cpu[index], time.process_time() - worked)
    torch.set_num_threads(threads)
    return wall, cpu


if __name__ == "__main__":
    sys.exit(main())
