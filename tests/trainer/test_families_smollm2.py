"""The one model whose real weights can be had: as the Llama it is, and as a Qwen2.

Both sides compute in fp32: a few hundred roundings (6e-8) in each of 30 layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from npu.engine_options import EngineOptions
from npu.engines.torch_cpu import TorchCpuEngine
from npu.frozen_matrix import FrozenMatrix
from npu.weights import FrozenWeights
from tests.trainer.oracle import oracle_of, relative_error
from tests.trainer.texts import package_texts
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.layout import BIASED, linear_shape
from trainer.packing import SegmentTree
from trainer.tokens import ChatTokenizer

TOKENS = 200


@dataclass(frozen=True)
class WithBiases:
    """SmolLM2's weights, and a zero bias wherever Qwen2 has one."""

    matrices: Mapping[str, FrozenMatrix]
    vectors: Mapping[str, np.ndarray]


@pytest.fixture(scope="module")
def weights(smollm2_home: Path) -> FrozenWeights:
    return FrozenWeights.open(smollm2_home / "models/smollm2-135m/weights.lorad")


@pytest.fixture(scope="module")
def ids(smollm2: ChatTokenizer) -> list[int]:
    """Prose and code."""
    text = "\n".join(package_texts(31, 8))
    return smollm2.answer_ids(text)[:TOKENS]


def our_logits(
    config: DecoderConfig, weights: FrozenWeights | WithBiases, ids: list[int]
) -> torch.Tensor:
    tree = SegmentTree()
    tree.add(ids)
    engine = TorchCpuEngine(weights.matrices, EngineOptions(threads=1))
    decoder = Decoder(config, weights, engine)
    return decoder.logits(decoder.hidden(tree.pack()))


def their_logits(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


def transformers_qwen2(llama: PreTrainedModel, biases: Mapping[str, np.ndarray]) -> PreTrainedModel:
    """transformers' Qwen2 of the same tensors; they are shared, not copied."""
    names = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    names += "num_key_value_heads max_position_embeddings rms_norm_eps rope_parameters "
    names += "tie_word_embeddings"
    settings = {name: getattr(llama.config, name) for name in names.split()}
    model = Qwen2ForCausalLM(Qwen2Config(**settings))
    zeros = {f"model.{name}": torch.from_numpy(bias) for name, bias in biases.items()}
    model.load_state_dict({**llama.state_dict(), **zeros}, assign=True)
    return model.eval()


def zero_biases(config: DecoderConfig) -> dict[str, np.ndarray]:
    return {
        f"layers.{layer}.self_attn.{linear}.bias": np.zeros(
            linear_shape(config, linear)[0], np.float32
        )
        for layer in range(config.num_hidden_layers)
        for linear in BIASED
    }


@pytest.mark.slow
def test_logits_equal_transformers_as_a_llama_and_as_a_qwen2(
    weights: FrozenWeights, ids: list[int]
) -> None:
    assert len(ids) == TOKENS
    config = DecoderConfig.from_json(weights.metadata["config"])
    as_qwen2 = replace(config, family="qwen2", attention_bias=True)
    biases = zero_biases(as_qwen2)
    ours = our_logits(config, weights, ids)
    with_biases = WithBiases(weights.matrices, {**weights.vectors, **biases})
    assert torch.equal(our_logits(as_qwen2, with_biases, ids), ours)

    llama = oracle_of(config, weights, torch.float32)
    assert relative_error(ours, their_logits(llama, ids)) < 5e-6
    assert relative_error(ours, their_logits(transformers_qwen2(llama, biases), ids)) < 5e-6
