"""PEFT in a bare training loop, as its documentation shows it: ids and labels in, loss out."""

from __future__ import annotations

from typing import Any

import peft
import torch
import transformers
from safetensors.torch import load_file

from bench.peers_channel import Channel
from bench.peers_loop import train
from bench.peers_task import TARGETS, Task


def load_model(task: Task) -> Any:
    """The base with the task's adapter, ready to be trained.

    Raises ValueError if the adapter file and the model's adapter differ in any tensor's name.
    """
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        task.base, dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    total = model.config.num_hidden_layers
    config = peft.LoraConfig(
        r=task.rank,
        lora_alpha=int(task.alpha),
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
        target_modules=list(TARGETS),
        layers_to_transform=None
        if task.layers is None
        else list(range(total - task.layers, total)),
    )
    model = peft.get_peft_model(model, config)
    given = load_file(task.adapter)
    wanted = {
        name.replace(".default.", ".") for name, p in model.named_parameters() if p.requires_grad
    }
    if missing := wanted - given.keys():
        raise ValueError(f"expected {min(missing)} in {task.adapter}, found none; write it anew")
    peft.set_peft_model_state_dict(model, {name: given[name] for name in wanted})
    model.train()
    return model


def trainable(model: Any) -> list[torch.nn.Parameter]:
    """What the optimizer moves."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def versions() -> dict[str, str]:
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
    }


def run(task: Task, channel: Channel, checkpointing: bool = False) -> None:
    model = load_model(task)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()

    def loss_of(ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=ids, labels=labels).loss
        return loss

    train(task, channel, trainable(model), loss_of, versions())
