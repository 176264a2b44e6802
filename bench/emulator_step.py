"""One training step of a real model on a half-precision engine beside `torch_cpu`.

    python -m bench.emulator_step HOME/models/smollm2-135m [--engine qnn] [--form table]
        [--buckets 8 64] [--tokens 64] [--json]

Same tokens, same adapter (lora_B random, as at zero every gradient of lora_A is zero), one forward,
recomputation and backward each; prints the relative Frobenius error of every adapter gradient
against `torch_cpu` on the same codes. Seconds on the emulator say nothing about a phone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Literal

import torch

from npu.engine_options import EngineOptions
from npu.ledger import padded_share
from npu.opening import open_engine
from npu.pieces import BUCKETS
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder

EngineName = Literal["qnn", "onnx_cpu", "torch_cpu"]


def gradients(
    weights: FrozenWeights, engine_name: EngineName, tokens: int, options: EngineOptions
) -> tuple[dict[str, torch.Tensor], float, dict[str, Any]]:
    """Adapter gradients of one step, the step's seconds and the engine's report."""
    config = DecoderConfig.from_json(weights.metadata["config"])
    engine = open_engine(weights, engine_name, options)
    adapter = LoraAdapter(config, rank=8, alpha=16.0, seed=0)
    generator = torch.Generator().manual_seed(1)
    adapter.randomise(generator, 0.01)
    ids = torch.randint(20, config.vocab_size, (tokens + 1,), generator=generator).tolist()
    batch = [TokenExample(1, tuple(ids[:-2]), tuple(ids[-2:]), "")]
    method = FirstOrder(
        Decoder(config, weights, engine), adapter, micro_batch_tokens=tokens, recompute=True
    )
    began = time.monotonic()
    method.accumulate(batch)
    seconds = time.monotonic() - began
    found = {key: value.double() for key, value in adapter.named_gradients().items()}
    return found, seconds, engine.report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--engine", choices=["qnn", "onnx_cpu"], default="qnn")
    parser.add_argument("--form", choices=["auto", "inputs", "table"], default="auto")
    parser.add_argument("--buckets", type=int, nargs="+", default=BUCKETS)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    weights = FrozenWeights.open(arguments.model / "weights.lorad", verify=True)
    torch.set_num_threads(arguments.threads)
    options = EngineOptions(
        threads=arguments.threads, form=arguments.form, buckets=tuple(arguments.buckets)
    )
    expected, cpu_seconds, _ = gradients(weights, "torch_cpu", arguments.tokens, options)
    found, seconds, report = gradients(weights, arguments.engine, arguments.tokens, options)
    errors = {
        key: float((found[key] - expected[key]).norm() / expected[key].norm()) for key in expected
    }
    worst = max(errors, key=errors.__getitem__)
    result = {
        "engine": report["engine"],
        "form": report["form"],
        "form_why": report["form_why"],
        "context": report.get("context"),
        "precision": report["precision"],
        "device": report["device"],
        "tokens": arguments.tokens,
        "tensors": len(errors),
        "zero_gradients": sum(not bool(value.any()) for value in expected.values()),
        "gradient_error_median": statistics.median(errors.values()),
        "gradient_error_worst": errors[worst],
        "worst_tensor": worst,
        "products": report["products"],
        "rows": report["rows"],
        "padded_share": padded_share(report["rows"]),
        "fallbacks": report["fallbacks"],
        "seconds_this_machine": {"torch_cpu": cpu_seconds, arguments.engine: seconds},
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key}: {value}")


if __name__ == "__main__":
    main()
