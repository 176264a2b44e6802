"""PEFT at its best: as few and as quick operations as its model allows from outside.

The decoder's hidden states instead of its logits, and the head at label rows only; padding on the
right without an attention mask, which is exact under causal attention and keeps its fast kernel;
AdamW fused. Batches sorted by length are the setting's business.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.peers_channel import Channel
from bench.peers_peft import load_model, trainable, versions
from bench.peers_task import IGNORED, Task, padded


def run(task: Task, channel: Channel) -> None:
    model = load_model(task)
    causal = model.base_model.model
    parameters = trainable(model)
    optimizer = torch.optim.AdamW(parameters, lr=task.learning_rate, weight_decay=0.0, fused=True)
    channel.ready(**versions())
    for step in channel.steps():
        ids, labels = (torch.tensor(rows) for rows in padded(task.batches[step]))
        predicted = labels[:, 1:]
        labelled = predicted != IGNORED
        hidden = causal.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = causal.lm_head(hidden[:, :-1][labelled])
        loss = F.cross_entropy(logits, predicted[labelled])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, task.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        channel.done(float(loss.detach()))
