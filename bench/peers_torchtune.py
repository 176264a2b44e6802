"""torchtune's LoRA model and chunked loss, stepped as its single-device recipe; in its environment.

Its rotary positions turn neighbouring pairs where Hugging Face's turn halves, so the rows of q and
k are in another order there: `hf_to_tune` moves those of the weights, and `_adapter` those of
lora_B in the same way.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torchtune.models.convert_weights import hf_to_tune
from torchtune.models.llama3_2 import lora_llama3_2
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

from bench.peers_channel import Channel
from bench.peers_loop import train
from bench.peers_task import IGNORED, Task

_MODULES = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "mlp.w1": "mlp.gate_proj",
    "mlp.w2": "mlp.down_proj",
    "mlp.w3": "mlp.up_proj",
}


def run(task: Task, channel: Channel) -> None:
    if task.layers is not None:
        raise ValueError("torchtune adapts all layers or none; expected a task with all of them")
    model = _model(task)
    chunked = CEWithChunkedOutputLoss()
    model.set_num_output_chunks(chunked.num_output_chunks)
    parameters = [p for p in model.parameters() if p.requires_grad]
    versions = {"torch": torch.__version__, "torchtune": importlib.metadata.version("torchtune")}

    def loss_of(ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        nothing = torch.full((len(labels), 1), IGNORED)
        loss: torch.Tensor = chunked(model(ids), torch.hstack((labels[:, 1:], nothing)))
        return loss

    train(task, channel, parameters, loss_of, versions)


def _model(task: Task) -> Any:
    base = json.loads((Path(task.base) / "config.json").read_text())
    heads, key_value_heads = base["num_attention_heads"], base["num_key_value_heads"]
    model = lora_llama3_2(
        lora_attn_modules=["q_proj", "k_proj", "v_proj", "output_proj"],
        apply_lora_to_mlp=True,
        vocab_size=base["vocab_size"],
        num_layers=base["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=key_value_heads,
        embed_dim=base["hidden_size"],
        max_seq_len=base["max_position_embeddings"],
        intermediate_dim=base["intermediate_size"],
        norm_eps=base["rms_norm_eps"],
        rope_base=base["rope_theta"],
        scale_factor=1,
        lora_rank=task.rank,
        lora_alpha=task.alpha,
        tie_word_embeddings=base["tie_word_embeddings"],
    )
    tensors = load_file(str(Path(task.base) / "model.safetensors"))
    state = hf_to_tune(tensors, heads, key_value_heads, base["hidden_size"], base["head_dim"])
    state |= _adapter(task, base)
    model.load_state_dict(state, strict=True)
    set_trainable_params(model, get_adapter_params(model))
    model.train()
    return model


def _adapter(task: Task, base: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Ours under torchtune's names, rows of q and k in torchtune's order."""
    given = load_file(task.adapter)
    found = {}
    for layer in range(base["num_hidden_layers"]):
        for module, linear in _MODULES.items():
            key = f"base_model.model.model.layers.{layer}.{linear}"
            lora_B = given[f"{key}.lora_B.weight"]
            if linear in ("self_attn.q_proj", "self_attn.k_proj"):
                halves = lora_B.view(-1, 2, base["head_dim"] // 2, task.rank)
                lora_B = halves.transpose(1, 2).reshape(lora_B.shape)
            found[f"layers.{layer}.{module}.lora_a.weight"] = given[f"{key}.lora_A.weight"]
            found[f"layers.{layer}.{module}.lora_b.weight"] = lora_B
    return found
