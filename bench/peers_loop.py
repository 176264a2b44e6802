"""The training loop of those peers that bring none: loss, backward, clip, AdamW, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from bench.peers_channel import Channel
from bench.peers_task import Task, padded

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of a padded batch's ids and labels, both int64 [B, T]."""


def train(
    task: Task,
    channel: Channel,
    parameters: Sequence[torch.nn.Parameter],
    loss_of: Loss,
    versions: dict[str, str],
    *,
    fused: bool | None = None,
) -> None:
    """Take the task's steps as they are asked for; `fused` is AdamW's."""
    optimizer = torch.optim.AdamW(parameters, lr=task.learning_rate, weight_decay=0.0, fused=fused)
    channel.ready(**versions)
    for step in channel.steps():
        ids, labels = (torch.tensor(rows) for rows in padded(task.batches[step]))
        loss = loss_of(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, task.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        channel.done(float(loss.detach()))
