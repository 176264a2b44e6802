"""The training loss: cross-entropy of the answer's tokens, and of nothing else.

Only the rows that predict an answer token get logits: a prompt of fifty tokens with a one-token
label has two such rows (label, end token), so the product with the vocabulary, the largest matrix
of a small model, is computed for two rows instead of fifty.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.models.decoder import Decoder
from trainer.packing import Packed, SegmentTree, common_prefix


def label_tokens(examples: Sequence[TokenExample]) -> int:
    """How many tokens of these examples carry loss."""
    return sum(len(example.answer) for example in examples)


def micro_batches(
    examples: Sequence[TokenExample], max_tokens: int
) -> list[tuple[int, list[TokenExample]]]:
    """Split a batch, in order, into parts of at most `max_tokens` packed tokens.

    The start that all prompts of the batch share (the chat template's head) is packed once a part.
    An example longer than the limit is a part of its own.

    Returns:
        (length of the shared prefix, examples) of each part.
    """
    shared = common_prefix([example.prompt for example in examples])
    parts: list[tuple[int, list[TokenExample]]] = []
    used = 0
    for example in examples:
        own = len(example.prompt) - shared + len(example.answer) - 1
        if not parts or used + own > max_tokens:
            parts.append((shared, []))
            used = shared
        parts[-1][1].append(example)
        used += own
    return parts


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
) -> tuple[torch.Tensor, int]:
    """Summed cross-entropy of the answers.

    Returns:
        The sum over all answer tokens (natural log), differentiable in the adapter, and the number
        of tokens that went through the layers.
    """
    packed, rows, targets = pack_for_loss(examples, shared)
    hidden = decoder.hidden(packed, adapter, recompute=recompute)
    logits = decoder.logits(hidden[rows])
    return F.cross_entropy(logits, targets, reduction="sum"), len(packed.ids)
