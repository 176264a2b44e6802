"""A worker's memory for real: `python -m tests.trainer.memory_child JSON`.

Loads what a worker loads, takes steps by the plan, and prints what was predicted of the peak and
what the system counted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import trainer.run  # noqa: F401  all that a worker imports
from bench.peers_memory import peak_bytes
from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.determinism import be_deterministic
from trainer.evaluate import evaluate
from trainer.lora import LoraAdapter
from trainer.memory import MIB, Work, predicted
from trainer.methods.first_order import FirstOrder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.optimizer import Optimizer
from trainer.plan import Choices, plan
from trainer.spec import TrainingSettings


def main() -> None:
    case = json.loads(sys.argv[1])
    be_deterministic()
    torch.set_num_threads(2)
    weights = FrozenWeights.open(Path(case["weights"]), verify=True)
    config = DecoderConfig.from_json(weights.metadata["config"])
    options = EngineOptions(threads=2)
    engine = open_engine(weights, case.get("engine", "torch_cpu"), options)
    adapter = LoraAdapter(config, rank=case.get("rank", 8), alpha=16.0, layers=case.get("layers"))
    adapter.randomise(torch.Generator().manual_seed(1), 0.01)
    chance = torch.Generator().manual_seed(2)
    batch = []
    for number, (length, answer) in enumerate(case["examples"]):
        ids = torch.randint(20, config.vocab_size, (length,), generator=chance).tolist()
        batch.append(TokenExample(number, ids[: length - answer], ids[length - answer :], "x"))
    longest = case.get("longest", max(length for length, _ in case["examples"]))
    work = Work.of(
        adapter,
        weights,
        engine,
        longest_example=longest,
        longest_evaluation=longest,
        examples=len(batch),
    )
    choices = Choices(case.get("micro_batch_tokens"), case.get("recompute"))
    amounts = plan(work, case["budget_mb"] * MIB, choices)
    method = FirstOrder.by_plan(Decoder(config, weights, engine), adapter, amounts)
    optimizer = Optimizer(adapter, TrainingSettings())
    for _ in range(case.get("steps", 2)):
        loss = method.accumulate(batch).loss
        optimizer.step(1e-3)
        adapter.to_arrays(), optimizer.to_arrays()
    evaluate(
        Decoder(config, weights, engine),
        adapter,
        {example.id: example for example in batch},
        {},
        tokens_at_once=amounts.evaluation_tokens,
        logit_rows=amounts.scored_rows,
    )
    parts = predicted(work, amounts)
    print(
        json.dumps(
            {
                "peak_mb": peak_bytes() / MIB,
                "predicted_mb": sum(parts.values()) / MIB,
                "parts_mb": {name: round(part / MIB) for name, part in parts.items()},
                "amounts": vars(amounts),
                "loss": loss,
                "padded": engine.ledger.report()["rows"],
            }
        )
    )


if __name__ == "__main__":
    main()
