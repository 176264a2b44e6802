"""Tiny random models of every family, made and saved by the real `transformers`, and ours of them.

transformers ─ save_pretrained ─▶ folder ─ add_model ─▶ weights.lorad ─▶ Decoder
     └─ the oracle: the same weights, which fp16 holds exactly, computed in float64
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from trainer.add_model import add_model
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.tiny import byte_tokenizer

_SHAPE = {
    "vocab_size": 288,
    "hidden_size": 40,  # no square matrix: heads x head size is 48 or more
    "intermediate_size": 104,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "sdpa",  # transformers' eager softmax is fp32
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # of 6 frequencies 1 kept, 2 between, 3 stretched
}


def _llama(**settings: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**{**_SHAPE, **settings}))


def _qwen2(**settings: Any) -> PreTrainedModel:
    shape = {**_SHAPE, "hidden_size": 48, **settings}  # Qwen2 has no head size of its own
    return Qwen2ForCausalLM(Qwen2Config(**{k: v for k, v in shape.items() if k != "head_dim"}))


def _qwen3(**settings: Any) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**{**_SHAPE, **settings}))


FAMILIES: Mapping[str, Callable[[], PreTrainedModel]] = {
    "llama": partial(_llama, tie_word_embeddings=False),
    "llama, one head a group": partial(
        _llama, tie_word_embeddings=True, num_key_value_heads=4, head_dim=14
    ),
    "llama 3": partial(_llama, tie_word_embeddings=True, rope_parameters=_LLAMA3),
    "llama, linear": partial(
        _llama,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0},
    ),
    "qwen2": partial(_qwen2, tie_word_embeddings=True),
    "qwen2, untied": partial(
        _qwen2,
        tie_word_embeddings=False,
        num_key_value_heads=1,
        rope_parameters={"rope_theta": 1e6},
    ),
    "qwen3": partial(_qwen3, tie_word_embeddings=True, head_dim=22),
    "qwen3, untied": partial(_qwen3, tie_word_embeddings=False, rope_parameters=_LLAMA3),
}
"""Each family with tied and untied heads, grouped and single heads, plain and scaled positions."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Member:
    """One model twice."""

    oracle: PreTrainedModel
    """transformers' in float64."""
    folder: Path
    """What transformers saved, with a tokenizer."""
    weights: FrozenWeights
    config: DecoderConfig

    def decoder(self) -> Decoder:
        """Ours, in fp32 on the CPU engine."""
        engine = open_engine(self.weights, "torch_cpu", EngineOptions(threads=1))
        return Decoder(self.config, self.weights, engine)


def make_member(home: Path, family: str, seed: int = 0) -> Member:
    """Make, save and add a model; `home` gets the folder and models/."""
    torch.manual_seed(seed)
    model = FAMILIES[family]()
    randomise(model)
    folder = home / "source"
    save(model, folder)
    return add_member(home, model, folder)


def add_member(home: Path, model: PreTrainedModel, folder: Path) -> Member:
    """The model saved in `folder`, added as `lorad model add` would."""
    add_model(home, "member", str(folder), "fp16")
    weights = FrozenWeights.open(home / "models/member/weights.lorad")
    config = DecoderConfig.from_json(weights.metadata["config"])
    return Member(in_float64(model), folder, weights, config)


def randomise(model: PreTrainedModel) -> None:
    """Weights fp16 holds exactly: uneven rows, norms around one, biases that matter."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                values = torch.randn_like(weight) * 0.5
            elif weight.dim() == 1:
                values = torch.rand_like(weight) + 0.5
            else:
                scale = torch.rand(len(weight), 1) * 1.7 + 0.3
                values = torch.randn_like(weight) * scale / weight.shape[1] ** 0.5
            weight.copy_(values.half().float())


def save(model: PreTrainedModel, folder: Path) -> None:
    """`save_pretrained`, and a byte tokenizer with ChatML beside it."""
    model.save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    tokens = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))


class _Float64Norm(nn.Module):
    """RMSNorm without transformers' detour through fp32."""

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt())


def in_float64(model: PreTrainedModel) -> PreTrainedModel:
    """The model with everything but its rotary tables in float64."""
    model = model.double().eval()
    for name, module in list(model.named_modules()):
        if name.endswith("norm"):
            parent, _, child = name.rpartition(".")
            norm = _Float64Norm(module.weight, model.config.rms_norm_eps)
            setattr(model.get_submodule(parent), child, norm)
    return model
