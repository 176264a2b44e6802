"""The machine's matrix rate: `python -m bench.peers_gemm CONFIG.json`, a process of its own.

torch's fp32 products of the frozen shapes of a layer, forwards (x W^T) and input gradient (dy W),
at the row counts of two settings, with weights that come from memory: more layers than the caches
hold, in the order of a model. Once with one thread, whose rate counts twice (two such processes
don't slow each other on this bench's reference machine), and once with two. The bound is the best
median rate of any shape, direction and row count in either arrangement: no trainer made of these
products can be faster than its operations at that rate, and only one that is nothing but the
best of them comes near.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from trainer.models.config import DecoderConfig
from trainer.models.layout import PRODUCTS, linear_shape

ROWS = (256, 1024)
THREADS = 2
_LAYERS = 10
_REPEATS = 2


def main() -> None:
    config = DecoderConfig.from_json(json.loads(Path(sys.argv[1]).read_text()))
    print(json.dumps(measure(config)))


def measure(config: DecoderConfig) -> dict[str, Any]:
    """GFLOP/s of the best arrangement, and of each."""
    rates = {f"1 thread x {THREADS}": THREADS * _best(config, 1), "2 threads": _best(config, 2)}
    return {"gflops": max(rates.values()), "arrangements": rates}


def _best(config: DecoderConfig, threads: int) -> float:
    torch.set_num_threads(threads)
    shapes = {
        product: (sum(linear_shape(config, n)[0] for n in names), linear_shape(config, names[0])[1])
        for product, names in PRODUCTS.items()
    }
    weights = [{name: torch.randn(shape) for name, shape in shapes.items()} for _ in range(_LAYERS)]
    rates: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for rows in ROWS:
        operands = {
            name: (torch.randn(rows, K), torch.randn(rows, N)) for name, (N, K) in shapes.items()
        }
        for _ in range(_REPEATS):
            for layer in weights:
                for name, W in layer.items():
                    x, dy = operands[name]
                    for direction, product in _products(x, dy, W):
                        started = time.perf_counter()
                        product()
                        seconds = time.perf_counter() - started
                        rates[name, direction, rows].append(2e-9 * rows * W.numel() / seconds)
    return max(statistics.median(found) for found in rates.values())


def _products(
    x: torch.Tensor, dy: torch.Tensor, W: torch.Tensor
) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    yield "forward", lambda: torch.mm(x, W.t())
    yield "input_gradient", lambda: torch.mm(dy, W)


if __name__ == "__main__":
    main()
