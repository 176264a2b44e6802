"""PEFT at its best: as few and as quick operations as its model allows from outside.

The decoder's hidden states instead of its logits, and the head at label rows only; padding on the
right without an attention mask, which is exact under causal attention and keeps its fast kernel;
AdamW fused. Batches sorted by length are the setting's business.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.peers_channel import Channel
from bench.peers_loop import train
from bench.peers_peft import load_model, trainable, versions
from bench.peers_task import IGNORED, Task


def run(task: Task, channel: Channel) -> None:
    model = load_model(task)
    causal = model.base_model.model

    def loss_of(ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        predicted = labels[:, 1:]
        labelled = predicted != IGNORED
        hidden = causal.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = causal.lm_head(hidden[:, :-1][labelled])
        return F.cross_entropy(logits, predicted[labelled])

    train(task, channel, trainable(model), loss_of, versions(), fused=True)
