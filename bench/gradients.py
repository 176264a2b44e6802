"""What a half-precision engine leaves of gradients, with our row protection and with peers' ways.

    python -m bench.gradients --json [--engine qnn|onnx_cpu] [--forms inputs table]

1. Input gradients dx = dy W of rows of two distributions (`gradients_rows.py`), per row against
   float64 with the same effective weights: ours per form and weight format, and peers
   (`gradients_peers.py`) with fp16 weights through the same provider.
2. An output head of N rows, both directions: long contractions are chunked and summed in fp32.
3. LoRA gradients of a toy model at three loss scales (`gradients_lora.py`).

Exit code 1 if ours loses a row, has a row worse than 5e-4, or a LoRA gradient worse than 3e-3.
On `onnx_cpu` a graph's fp32 is fp32, so `fp32_io` and `in_graph` look good there: on the NPU it is
fp16. Emulator: form `inputs` two minutes, `table` five and 4.5 GB, for the larger head's context.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from bench.gradients_lora import LOSS_SCALES, our_lora_errors, peer_lora_errors
from bench.gradients_peers import PEERS, PeerEngine
from bench.gradients_rows import (
    Distribution,
    float64_product,
    frozen,
    gradient_rows,
    product_errors,
    row_errors,
)
from npu.engine import EngineName
from npu.engine_options import EngineOptions, FormName
from npu.engines.create import create_engine
from npu.ledger import Direction
from npu.weight_layout import WeightFormat

FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)

WORST_ROW, WORST_LORA = 5e-4, 3e-3
"""The goals; rounding a row and its result to fp16 costs about 3e-4."""

_N, _K, _ROWS = 768, 512, 256
HEADS = {49_152: 576, 151_936: 896}
"""Vocabulary and hidden size of SmolLM2-135M and of Qwen2.5-0.5B."""
_HEAD_ROWS = 8

_BUCKETS = (32, 128, 256)
"""What the rows and the toy model need; a table compiles graphs for all of them."""

Provider = Literal["qnn", "onnx_cpu"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gradients", description=__doc__)
    parser.add_argument("--engine", choices=get_args(Provider), default="qnn")
    parser.add_argument("--forms", choices=get_args(FormName), nargs="+")
    parser.add_argument("--formats", choices=FORMATS, nargs="+", default=FORMATS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    forms = options.forms or (get_args(FormName) if options.engine == "qnn" else ["inputs"])
    torch.set_num_threads(options.threads)
    # Native libraries print to descriptor 1; standard output is for the result alone.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    result = measure(options.engine, forms, options.formats, options.threads)
    print(json.dumps(result, indent=None if options.json else 2, allow_nan=False), file=output)
    return 0 if result["passed"] else 1


def measure(
    provider: Provider, forms: Iterable[FormName], formats: Iterable[WeightFormat], threads: int
) -> dict[str, Any]:
    """Everything, ours first; `rows_lost` and the worst errors are over all forms and formats."""
    formats = tuple(formats)
    ours: dict[str, Any] = {}
    for form in forms:
        options = EngineOptions(threads=threads, form=form, buckets=_BUCKETS)
        lora = {format: our_lora_errors(provider, format, options) for format in formats}
        ours[form] = {
            "input_gradient": {
                distribution: {
                    format: our_rows(provider, options, distribution, format) for format in formats
                }
                for distribution in DISTRIBUTIONS
            },
            "head": {str(N): head_errors(provider, options, N, K) for N, K in HEADS.items()},
            "lora_gradient_error": lora,
        }
    rows = [case for of_form in ours.values() for case in _row_cases(of_form)]
    lora_errors = [
        error
        for of_form in ours.values()
        for of_format in of_form["lora_gradient_error"].values()
        for error in of_format.values()
    ]
    rows_lost = sum(case["rows_lost"] for case in rows)
    worst_row = _worst(case["worst_row_error"] for case in rows)
    worst_lora = _worst(lora_errors)
    return {
        "engine": provider,
        "rows_lost": rows_lost,
        "worst_row_error": worst_row,
        "lora_gradient_error": worst_lora,
        "passed": rows_lost == 0
        and worst_row is not None
        and worst_row <= WORST_ROW
        and worst_lora is not None
        and worst_lora <= WORST_LORA,
        "goals": {"rows_lost": 0, "worst_row_error": WORST_ROW, "lora_gradient_error": WORST_LORA},
        "loss_scales": list(LOSS_SCALES),
        "ours": ours,
        "peers": peers(provider, threads),
    }


def peers(provider: Provider, threads: int) -> dict[str, Any]:
    """Each peer on the rows and on the toy model, with fp16 weights."""
    options = EngineOptions(threads=threads)
    lora = peer_lora_errors(provider, options)
    matrix = frozen("fp16", _N, _K)
    return {
        peer: {
            **{
                distribution: product_errors(
                    PeerEngine(peer, provider, {"m": matrix}, options),
                    matrix,
                    "input_gradient",
                    gradient_rows(distribution, _ROWS, _N),
                ).to_json()
                for distribution in DISTRIBUTIONS
            },
            "lora_gradient_error": lora[peer],
        }
        for peer in PEERS
    }


def our_rows(
    provider: EngineName, options: EngineOptions, distribution: Distribution, format: WeightFormat
) -> dict[str, Any]:
    """Errors against the effective weights as the engine reads them, forwards, from unit rows.

    In a table's graph some 4-bit weights are an ulp off the file's: `worst_row_against_file`
    is the worst row with these instead.
    """
    matrix = frozen(format, _N, _K)
    engine = create_engine(provider, {"m": matrix}, options)
    weights = engine.forward("m", torch.eye(_K)).double().numpy().T
    dy = gradient_rows(distribution, _ROWS, _N)
    found = engine.input_gradient("m", torch.from_numpy(dy)).numpy()
    against_file = row_errors(found, float64_product(matrix, "input_gradient", dy))
    errors = row_errors(found, dy.astype(np.float64) @ weights)
    return {**errors.to_json(), "worst_row_against_file": against_file.worst_row_error}


def head_errors(
    provider: EngineName, options: EngineOptions, N: int, K: int
) -> dict[Direction, Any]:
    """Both directions of an fp16 head [N, K]: rows of dy as of a softmax, heavy-tailed."""
    matrix = frozen("fp16", N, K)
    engine = create_engine(provider, {"m": matrix}, replace(options, buckets=(_HEAD_ROWS,)))
    return {
        direction: product_errors(
            engine,
            matrix,
            direction,
            gradient_rows("heavy_tailed", _HEAD_ROWS, K if direction == "forward" else N),
        ).to_json()
        for direction in get_args(Direction)
    }


def _row_cases(of_form: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    by_format = [case for d in of_form["input_gradient"].values() for case in d.values()]
    return by_format + [case for head in of_form["head"].values() for case in head.values()]


def _worst(errors: Iterable[float | None]) -> float | None:
    """The largest; None if one isn't finite."""
    found = list(errors)
    numbers = [error for error in found if error is not None]
    return max(numbers) if len(numbers) == len(found) else None


if __name__ == "__main__":
    sys.exit(main())
