"""litgpt's LoRA model and loss, stepped as its `finetune/lora.py` does; in litgpt's environment.

Its attention is one fused linear: our lora_A of q, k and v are stacked in it, and so are the
lora_B, whose rows are in the same order as ours.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import torch
from litgpt.lora import GPT, Config, mark_only_lora_as_trainable
from litgpt.scripts.convert_hf_checkpoint import copy_weights_hf_llama
from litgpt.utils import chunked_cross_entropy
from safetensors.torch import load_file

from bench.peers_channel import Channel
from bench.peers_loop import train
from bench.peers_task import Task

_HEAD_CHUNK = 128
"""Positions of logits at a time, as in litgpt's own training loop."""

_MODULES = {
    "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn.proj": ("self_attn.o_proj",),
    "mlp.fc_1": ("mlp.gate_proj",),
    "mlp.fc_2": ("mlp.up_proj",),
    "mlp.proj": ("mlp.down_proj",),
}


def run(task: Task, channel: Channel) -> None:
    if task.layers is not None:
        raise ValueError("litgpt adapts all layers or none; expected a task with all of them")
    model = _model(task)
    parameters = [p for p in model.parameters() if p.requires_grad]
    versions = {"torch": torch.__version__, "litgpt": importlib.metadata.version("litgpt")}

    def loss_of(ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(ids, lm_head_chunk_size=_HEAD_CHUNK)
        logits[-1] = logits[-1][..., :-1, :]
        loss: torch.Tensor = chunked_cross_entropy(logits, labels[..., 1:])
        return loss

    train(task, channel, parameters, loss_of, versions)


def _model(task: Task) -> Any:
    config = _config(task)
    model = GPT(config)
    tensors = load_file(str(Path(task.base) / "model.safetensors"))
    state: dict[str, torch.Tensor] = {}
    copy_weights_hf_llama(config, {}, state, tensors)
    model.load_state_dict({**state, **_adapter(task, config.n_layer)}, strict=True)
    model.max_seq_length = max(len(e.ids) for batch in task.batches for e in batch)
    mark_only_lora_as_trainable(model)
    model.train()
    return model


def _config(task: Task) -> Any:
    base = json.loads((Path(task.base) / "config.json").read_text())
    return Config(
        block_size=base["max_position_embeddings"],
        vocab_size=base["vocab_size"],
        padded_vocab_size=base["vocab_size"],
        n_layer=base["num_hidden_layers"],
        n_head=base["num_attention_heads"],
        n_embd=base["hidden_size"],
        n_query_groups=base["num_key_value_heads"],
        head_size=base["head_dim"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
        intermediate_size=base["intermediate_size"],
        rope_base=base["rope_theta"],
        norm_eps=base["rms_norm_eps"],
        lora_r=task.rank,
        lora_alpha=task.alpha,
        lora_dropout=0.0,
        lora_query=True,
        lora_key=True,
        lora_value=True,
        lora_projection=True,
        lora_mlp=True,
        lora_head=False,
    )


def _adapter(task: Task, layers: int) -> dict[str, torch.Tensor]:
    """Ours under litgpt's names."""
    given = load_file(task.adapter)
    return {
        f"transformer.h.{layer}.{module}.{part}": torch.cat(
            [
                given[f"base_model.model.model.layers.{layer}.{linear}.{part}.weight"]
                for linear in linears
            ]
        )
        for layer in range(layers)
        for module, linears in _MODULES.items()
        for part in ("lora_A", "lora_B")
    }
