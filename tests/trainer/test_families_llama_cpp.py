"""A GGUF file of each family computed by llama.cpp itself, and by ours as added from that file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from npu.weights import FrozenWeights
from tests.trainer.families import FAMILIES, Member, in_float64, randomise
from tests.trainer.family_gguf import write_gguf
from tests.trainer.family_tokenizers import TOKENIZERS
from trainer.add_model import add_model
from trainer.models.config import DecoderConfig
from trainer.packing import SegmentTree

IDS = torch.randint(3, 1500, (150,), generator=torch.Generator().manual_seed(1)).tolist()
SHAPES: dict[str, tuple[str, dict[str, int]]] = {
    "llama": ("llama 3", {"head_dim": 16}),
    "llama 3": ("llama 3", {"head_dim": 16}),
    "llama, linear": ("llama 3", {"head_dim": 16}),
    "qwen2": ("qwen2", {"hidden_size": 64}),
    "qwen3": ("qwen2", {"head_dim": 16}),
}
"""Each family's tokenizer, and a head size that llama.cpp's kernels take."""


def likely_next(path: Path) -> list[dict[str, Any]]:
    """llama.cpp's twenty likeliest tokens after IDS, each with `id` and `logprob`."""
    xllamacpp = pytest.importorskip("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 512
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.n_parallel = 1
    asked = {"prompt": IDS, "n_predict": 1, "n_probs": 20, "temperature": 0.0}
    answer = xllamacpp.Server(parameters).handle_completions(asked)
    answer = answer if isinstance(answer, dict) else json.loads(answer)
    found: list[dict[str, Any]] = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return found


def our_next(member: Member) -> torch.Tensor:
    tree = SegmentTree()
    tree.add(IDS)
    decoder = member.decoder()
    return decoder.logits(decoder.hidden(tree.pack()))[-1].log_softmax(-1)


@pytest.mark.parametrize("family", SHAPES)
def test_next_tokens_equal_llama_cpps(family: str, tmp_path: Path) -> None:
    """llama.cpp keeps keys and values in fp16: up to 3e-3 of a log-probability was measured."""
    tokenizer, shape = SHAPES[family]
    torch.manual_seed(0)
    made = TOKENIZERS[tokenizer]()
    model = FAMILIES[family](vocab_size=len(made.oracle), **shape)
    randomise(model)
    path = write_gguf(tmp_path / "model.gguf", model, **made.gguf)
    add_model(tmp_path, "member", str(path), "fp16")
    weights = FrozenWeights.open(tmp_path / "models/member/weights.lorad")
    config = DecoderConfig.from_json(weights.metadata["config"])
    member = Member(in_float64(model), path, weights, config)
    expected, ours = likely_next(path), our_next(member)
    assert len(expected) == 20
    for token in expected:
        assert ours[token["id"]].item() == pytest.approx(token["logprob"], abs=1e-2)
    if config.rope_scaled:
        plain = our_next(
            dataclasses.replace(member, config=dataclasses.replace(config, rope_scaled=False))
        )
        assert max(abs(plain[t["id"]].item() - t["logprob"]) for t in expected) > 1
