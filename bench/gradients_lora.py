"""LoRA gradients of a toy model against float64 with the same effective weights.

The model is the trainer's tiny random Llama of two layers; lora_B is random, since at zero every
gradient of lora_A is zero. The error is the largest, over all lora_A and lora_B, of the Frobenius
norm of the difference over that of the expected gradient. The loss is multiplied by each of
LOSS_SCALES before the backward pass and the gradients are divided by it after: a small loss is a
model that knows its examples well, or a mean over many tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from peft import PeftModel

from bench.gradients_peers import PEERS, Peer, PeerEngine
from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weight_layout import WeightFormat
from npu.weights import FrozenWeights
from tests.trainer.oracle import oracle_of, randomise_b, relative_error
from trainer.add_model import add_model
from trainer.dataset import TokenExample
from trainer.export.peft import write_peft_folder
from trainer.lora import LoraAdapter
from trainer.loss import answer_loss
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.tiny import write_tiny_model

LOSS_SCALES = {"1": 1.0, "2**-10": 2.0**-10, "2**-16": 2.0**-16}

Gradients = dict[str, torch.Tensor]

_HIDDEN, _FFN = 128, 384
"""With the tiny model's own 64 the worst tensor depends on the draw: 1.9e-3 to 3.5e-3 in ten."""

_EXAMPLES, _PROMPT, _ANSWER = 4, 12, 8


def our_lora_errors(
    provider: EngineName, format: WeightFormat, options: EngineOptions, seed: int = 0
) -> dict[str, float | None]:
    """The worst tensor's error at each loss scale; None: not finite."""
    with _toy(format, seed) as toy:
        engine = open_engine(toy.weights, provider, options)
        errors = _errors(toy, engine)
        report = engine.report()
        engine.close()
    if set(report["products"]) != {provider}:
        raise RuntimeError(f"expected every product on {provider}: {report['fallbacks']}")
    return errors


def peer_lora_errors(
    provider: EngineName, options: EngineOptions, seed: int = 0
) -> dict[Peer, dict[str, float | None]]:
    """The same of each peer, with fp16 weights."""
    with _toy("fp16", seed) as toy:
        return {
            peer: _errors(toy, PeerEngine(peer, provider, toy.weights.matrices, options))
            for peer in PEERS
        }


@dataclass(frozen=True)
class _Toy:
    """A model, a batch, and what the gradients of its mean token loss should be."""

    weights: FrozenWeights
    config: DecoderConfig
    batch: list[TokenExample]
    expected: Gradients


@contextmanager
def _toy(format: WeightFormat, seed: int) -> Iterator[_Toy]:
    with TemporaryDirectory(prefix="lorad-gradients-") as name:
        home = Path(name)
        write_tiny_model(home / "source", seed=seed, hidden=_HIDDEN, ffn=_FFN)
        add_model(home, "toy", str(home / "source"), format)
        weights = FrozenWeights.open(home / "models" / "toy" / "weights.lorad")
        config = DecoderConfig.from_json(weights.metadata["config"])
        batch = _batch(config, seed)
        expected = _float64_gradients(weights, config, batch, home / "adapter")
        yield _Toy(weights, config, batch, expected)
        weights.close()


def _batch(config: DecoderConfig, seed: int) -> list[TokenExample]:
    generator = torch.Generator().manual_seed(seed)
    shape = (_EXAMPLES, _PROMPT + _ANSWER)
    ids = torch.randint(3, config.vocab_size, shape, generator=generator).tolist()
    return [
        TokenExample(number, tuple(row[:_PROMPT]), tuple(row[_PROMPT:]), "")
        for number, row in enumerate(ids)
    ]


def _adapter(config: DecoderConfig) -> LoraAdapter:
    adapter = LoraAdapter(config, rank=8, alpha=16.0, seed=0)
    randomise_b(adapter)
    return adapter


def _errors(toy: _Toy, engine: Engine) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, scale in LOSS_SCALES.items():
        gradients = _gradients(toy, engine, scale)
        errors = [relative_error(gradients[key], value) for key, value in toy.expected.items()]
        found[name] = max(errors) if all(map(math.isfinite, errors)) else None
    return found


def _gradients(toy: _Toy, engine: Engine, scale: float) -> Gradients:
    adapter = _adapter(toy.config)
    decoder = Decoder(toy.config, toy.weights, engine)
    weight = scale / (_EXAMPLES * _ANSWER)
    _, tokens = answer_loss(decoder, adapter, toy.batch, 0, recompute=True, weight=weight)
    assert tokens == _EXAMPLES * (_PROMPT + _ANSWER - 1)
    return {key: value.double() / scale for key, value in adapter.named_gradients().items()}


def _float64_gradients(
    weights: FrozenWeights, config: DecoderConfig, batch: list[TokenExample], folder: Path
) -> Gradients:
    """The same by `transformers` and `peft` in float64, one sequence at a time."""
    folder.mkdir()
    write_peft_folder(folder, _adapter(config), base_model="toy", base_hash="sha256:0")
    oracle = oracle_of(config, weights, torch.float64)
    model = PeftModel.from_pretrained(oracle, folder, is_trainable=True).double()
    for example in batch:
        logits = model(torch.tensor([[*example.prompt, *example.answer]])).logits[0]
        picked = logits[_PROMPT - 1 : _PROMPT - 1 + _ANSWER]
        loss = F.cross_entropy(picked, torch.tensor(example.answer), reduction="sum")
        (loss / (_EXAMPLES * _ANSWER)).backward()
    return {
        name.replace(".default", ""): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
