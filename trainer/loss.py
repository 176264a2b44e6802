"""The training loss: cross-entropy of the answer's tokens, and of nothing else.

Only the rows that predict an answer token get logits: a prompt of fifty tokens with a one-token
label has two such rows (label, end token), so the product with the vocabulary, the largest matrix
of a small model, is computed for two rows instead of fifty.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.models.decoder import Decoder
from trainer.models.keep import Keep
from trainer.packing import Packed, SegmentTree

LOGITS_AT_ONCE = 1 << 24
"""Numbers of the largest piece of logits: 64 MiB, 341 rows of SmolLM2's 49,152 words."""


def label_tokens(examples: Sequence[TokenExample]) -> int:
    """How many tokens of these examples carry loss."""
    return sum(len(example.answer) for example in examples)


def pack_for_loss(
    examples: Sequence[TokenExample], shared: int
) -> tuple[Packed, torch.Tensor, torch.Tensor]:
    """One packed sequence with the rows that predict answer tokens.

    Returns:
        The packed tokens, the rows int64 [L], and the target token of each row int64 [L].
    """
    tree = SegmentTree()
    root = tree.add(examples[0].prompt[:shared])
    rows: list[int] = []
    targets: list[int] = []
    for example in examples:
        prompt = tree.add(example.prompt[shared:], root)
        first = len(tree)
        tree.add(example.answer[:-1], prompt)
        rows += [tree.last_row(prompt), *range(first, len(tree))]
        targets += example.answer
    return tree.pack(), torch.tensor(rows), torch.tensor(targets)


def answer_loss(
    decoder: Decoder,
    adapter: LoraAdapter,
    examples: Sequence[TokenExample],
    shared: int,
    *,
    recompute: bool,
    below: torch.Tensor | None = None,
    room: Keep | None = None,
    weight: float = 1.0,
    logit_rows: int | None = None,
) -> tuple[float, int]:
    """The answers' cross-entropy; its gradient is added to the adapter's.

    Args:
        decoder: the base model.
        adapter: what learns.
        examples: packed as one sequence.
        shared: how many tokens all their prompts begin with; computed once.
        recompute: see `Decoder.forward`.
        below: see `Decoder.forward`; its rows are in the order of `pack_for_loss`.
        room: see `Decoder.forward`.
        weight: what the gradient is multiplied by.
        logit_rows: how many rows of logits exist at a time; None means `LOGITS_AT_ONCE`.

    Returns:
        The sum over all answer tokens (natural log), without the weight, and the number of tokens
        that went through the layers.
    """
    packed, rows, targets = pack_for_loss(examples, shared)
    distinct, place = torch.unique(rows, return_inverse=True)
    done = decoder.forward(packed, adapter, distinct, recompute=recompute, below=below, room=room)
    total = 0.0
    d_hidden = torch.empty_like(done.hidden)
    at_once = logit_rows or max(1, LOGITS_AT_ONCE // decoder.config.vocab_size)
    for start in range(0, len(distinct), at_once):
        part = slice(start, start + at_once)
        here = (place >= part.start) & (place < part.stop)
        loss, d_hidden[part] = _head(
            decoder, done.hidden[part], place[here] - start, targets[here], weight
        )
        total += loss
    decoder.backward(done, d_hidden, adapter)
    return total, len(packed.ids)


def _head(
    decoder: Decoder, hidden: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, weight: float
) -> tuple[float, torch.Tensor]:
    """The loss of some rows and the gradient of their states; no logits outlast this."""
    logits = decoder.logits(hidden)
    loss = cross_entropy_to_gradient(logits, rows, targets, weight)
    return loss, decoder.logits_gradient(logits)


def cross_entropy_to_gradient(
    logits: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, weight: float
) -> float:
    """The summed cross-entropy of some targets; the logits are overwritten with its gradient.

    Args:
        logits: [R, vocab_size].
        rows: int64 [L], the row of the logits that predicts each target; one may predict several.
        targets: int64 [L], the tokens.
        weight: what the gradient is multiplied by.
    """
    logits.sub_(logits.amax(1, keepdim=True))
    likely = logits[rows, targets]
    normaliser = logits.exp_().sum(1, keepdim=True)
    total = float((normaliser.log()[rows, 0] - likely).sum())
    share = torch.bincount(rows, minlength=len(logits)).to(logits.dtype)[:, None] * weight
    logits.mul_(share / normaliser)
    missing = torch.full(likely.shape, -weight, dtype=logits.dtype)
    logits.index_put_((rows, targets), missing, accumulate=True)
    return total
