"""The frozen products of SmolLM2-135M per engine, beside plain fp32 sgemm on dequantised weights.

    python -m bench.engines --engine torch_cpu --rows 320 --threads 2

Every round times the engine and the peer in turn, so that other load on the machine hits both.
Prints JSON: best milliseconds of each, and the ratio (1.0: as fast as sgemm, without its 4 bytes a
weight).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import get_args

import numpy as np
import torch

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.quantize import quantize
from npu.weight_layout import WeightFormat
from npu.weights import FrozenMatrix

SHAPES = {
    "qkv_proj": (960, 576),
    "o_proj": (576, 576),
    "gate_up_proj": (3072, 576),
    "down_proj": (576, 1536),
    "head": (49_152, 576),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engines", description=__doc__)
    parser.add_argument("--engine", choices=get_args(EngineName), default="torch_cpu")
    parser.add_argument("--format", choices=get_args(WeightFormat), default="int8")
    parser.add_argument("--rows", type=int, default=320)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    matrices = {name: random_matrix(name, options.format, *s) for name, s in SHAPES.items()}
    engine = create_engine(options.engine, matrices, EngineOptions(threads=options.threads))
    results = [
        compare(engine, matrix, options.rows, options.rounds) for matrix in matrices.values()
    ]
    json.dump(
        {
            "engine": engine.name,
            "device": engine.device,
            "versions": engine.versions(),
            "format": options.format,
            "rows": options.rows,
            "threads": options.threads,
            "results": results,
        },
        sys.stdout,
        indent=2,
    )
    print()
    return 0


def random_matrix(name: str, format: WeightFormat, N: int, K: int) -> FrozenMatrix:
    generator = np.random.default_rng(0)
    quantized = quantize(generator.standard_normal((N, K), np.float32), format)
    return FrozenMatrix(name, format, quantized.codes, quantized.scale, quantized.offset)


def compare(engine: Engine, matrix: FrozenMatrix, rows: int, rounds: int) -> dict[str, object]:
    N, K = matrix.shape
    W = torch.from_numpy(matrix.dequantize())
    x, dy = torch.randn(rows, K), torch.randn(rows, N)
    forward, peer_forward = race(
        lambda: engine.forward(matrix.name, x), lambda: torch.mm(x, W.t()), rounds
    )
    gradient, peer_gradient = race(
        lambda: engine.input_gradient(matrix.name, dy), lambda: torch.mm(dy, W), rounds
    )
    return {
        "matrix": matrix.name,
        "shape": [N, K],
        "forward": summary(forward, peer_forward),
        "input_gradient": summary(gradient, peer_gradient),
    }


def race(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Best seconds of each, measured in turn."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):
        for index, run in enumerate((ours, peer)):
            started = time.perf_counter()
            run()
            best[index] = min(best[index], time.perf_counter() - started)
    return best[0], best[1]


def summary(ours: float, peer: float) -> dict[str, float]:
    return {
        "milliseconds": round(ours * 1e3, 3),
        "sgemm_milliseconds": round(peer * 1e3, 3),
        "ratio": round(ours / peer, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
