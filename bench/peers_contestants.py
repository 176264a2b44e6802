"""Who takes part: the module that runs each contestant, its options, its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Contestant:
    """One way of training: `run(task, channel, **options)` of `module`."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None
    """A virtual environment of `bench.peers_environments`; None: this one."""
    same_weights: bool = True
    """Whether its effective weights are the base's, so that its losses must be too."""


CONTESTANTS: Mapping[str, Contestant] = {
    "ours": Contestant("bench.peers_ours"),
    "ours_int8": Contestant("bench.peers_ours", {"format": "int8"}, same_weights=False),
    "ours_fp16": Contestant("bench.peers_ours", {"format": "fp16"}, same_weights=False),
    "ours_700_mb": Contestant("bench.peers_ours", {"memory": 690 * 2**20}),
    "ours_saving_all": Contestant("bench.peers_ours", {"recompute": False}),
    "ours_cached": Contestant("bench.peers_ours", {"cached": True}),
    "peft_as_used": Contestant("bench.peers_trainer"),
    "peft": Contestant("bench.peers_peft"),
    "peft_checkpointing": Contestant("bench.peers_peft", {"checkpointing": True}),
    "peft_best": Contestant("bench.peers_peft_best"),
    "litgpt": Contestant("bench.peers_litgpt", environment="litgpt"),
    "torchtune": Contestant("bench.peers_torchtune", environment="torchtune"),
}
"""
ours                the trainer as the worker runs it, weights in the users' default format
ours_int8 …_fp16    the same with all weights in that format: other effective weights, other losses
ours_700_mb         the same with a budget of 690 MiB instead of the default 1024 MiB
ours_saving_all     every activation is kept for the backward pass instead of computed again
ours_cached         what the layers below the adapted ones give is kept on the disk, per example
peft_as_used        transformers' Trainer, its padding collator, the examples in the given order
peft                a bare loop around a PEFT model: ids and labels in, loss out
peft_checkpointing  the same with gradient checkpointing
peft_best           the same with logits at label rows only, no attention mask, fused AdamW
"""
