"""Attention among packed tokens with grouped queries, and its gradient.

    P = softmax(q kᵀ + bias)        o = P v        q [T, heads, head_dim], already scaled
    dV = Pᵀ do        dS = P · (do vᵀ - rowsum(do · o))        dq = dS k        dk = dSᵀ q

Queries are taken some at a time with the keys that any of them may see, so that the upper half of a
causal mask and the other examples of a pack cost nothing. The heads that share keys are rows of one
product with them: nothing is repeated, and the sums over a group happen inside the product. P is
computed again in the backward pass, since it costs less than a read of what it would take to keep.
Each thread takes some of the pieces, the same ones every time, so that the same threads give the
same bits.

Source of the gradient: Dao et al., FlashAttention (arXiv 2205.14135) appendix B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from trainer.models.side_by_side import SideBySide

QUERIES_AT_ONCE = 64
"""Measured on x86 with 256 and 512 causal tokens: 128 and 256 are slower by a third and more."""
_FEWEST_SCORES_TO_SHARE = 1 << 13
"""Queries times keys; below, a thread is done before another has begun."""


@dataclass(frozen=True)
class AttentionPiece:
    """Some queries, and the keys that at least one of them may attend to."""

    queries: slice
    """Which rows of q and of the outputs."""
    keys: slice | torch.Tensor
    """Which rows of k and v: a range, or int64 [m] if they don't lie together."""
    bias: torch.Tensor | None
    """[n, m], zero or minus infinity; None if every query may see every key."""

    @property
    def scores(self) -> int:
        """n · m."""
        keys = self.keys
        count = keys.stop - keys.start if isinstance(keys, slice) else len(keys)
        return int(count) * int(self.queries.stop - self.queries.start)


def attention_pieces(
    mask: torch.Tensor, dtype: torch.dtype = torch.float32
) -> list[AttentionPiece]:
    """The pieces of an attention mask, bool [queries, keys]; each row has a True."""
    pieces = []
    for start in range(0, len(mask), QUERIES_AT_ONCE):
        queries = slice(start, min(start + QUERIES_AT_ONCE, len(mask)))
        seen = mask[queries].any(0).nonzero().squeeze(1)
        first, last = int(seen[0]), int(seen[-1])
        together = last - first + 1 == len(seen)
        allowed = mask[queries][:, seen]
        bias = None
        if not allowed.all():
            bias = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf)
        pieces.append(AttentionPiece(queries, slice(first, last + 1) if together else seen, bias))
    return pieces


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pieces: Sequence[AttentionPiece],
    threads: SideBySide,
) -> torch.Tensor:
    """The attended values.

    Args:
        q: [Q, heads, head_dim], scaled by 1/√head_dim.
        k: [T, key_value_heads, head_dim]; consecutive query heads share one of them.
        v: as k.
        pieces: which query sees which key; together all queries, each once.
        threads: compute some of the pieces each.

    Returns:
        [Q, heads · head_dim].
    """
    grouped = _grouped(q, k)
    out = torch.empty_like(grouped)

    def attend(some: Sequence[AttentionPiece]) -> None:
        for piece in some:
            probabilities = _probabilities(_rows(grouped, piece.queries), k, piece)
            _put(out, piece.queries, torch.bmm(probabilities, _at(v, piece.keys)))

    threads.run([partial(attend, some) for some in _shares(pieces, threads.threads)])
    return out.flatten(1)


def attention_gradient(
    d_out: torch.Tensor,
    out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pieces: Sequence[AttentionPiece],
    threads: SideBySide,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v, each in its shape.

    `out` is what `attention` gave and `d_out` its gradient, [Q, heads · head_dim] both; the others
    are as given to `attention`.
    """
    grouped = _grouped(q, k)
    d_grouped = d_out.view(grouped.shape)
    # rowsum(do · o), one a query and head
    along = (d_out * out).view(grouped.shape).sum(-1, keepdim=True)
    dq = torch.empty_like(grouped)

    def differentiate(some: Sequence[AttentionPiece], dk: torch.Tensor, dv: torch.Tensor) -> None:
        for piece in some:
            queries = _rows(grouped, piece.queries)
            gradients = _rows(d_grouped, piece.queries)
            keys, values = _at(k, piece.keys), _at(v, piece.keys)
            probabilities = _probabilities(queries, k, piece)
            _add(dv, piece.keys, torch.bmm(probabilities.transpose(1, 2), gradients))
            d_scores = torch.bmm(gradients, values.transpose(1, 2))
            d_scores.sub_(_rows(along, piece.queries)).mul_(probabilities)
            _put(dq, piece.queries, torch.bmm(d_scores, keys))
            _add(dk, piece.keys, torch.bmm(d_scores.transpose(1, 2), queries))

    shares = _shares(pieces, threads.threads)
    sums = [(torch.zeros_like(k), torch.zeros_like(v)) for _ in shares]
    threads.run(
        [partial(differentiate, some, *into) for some, into in zip(shares, sums, strict=True)]
    )
    (dk, dv), *others = sums
    for other_dk, other_dv in others:
        dk.add_(other_dk)
        dv.add_(other_dv)
    return dq.view(q.shape), dk, dv


def _shares(pieces: Sequence[AttentionPiece], threads: int) -> list[list[AttentionPiece]]:
    """The pieces of each of at most `threads` threads, about as much work for each; one or more."""
    costs = [(piece.scores, place) for place, piece in enumerate(pieces)]
    if sum(cost for cost, _ in costs) < _FEWEST_SCORES_TO_SHARE:
        return [list(pieces)]
    loads = [0] * min(threads, len(pieces))
    shares: list[list[AttentionPiece]] = [[] for _ in loads]
    for cost, place in sorted(costs, reverse=True):
        least = loads.index(min(loads))
        loads[least] += cost
        shares[least].append(pieces[place])
    return shares


def _grouped(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The queries by the keys they share: [Q, key_value_heads, group, head_dim]."""
    return q.reshape(len(q), k.shape[1], -1, q.shape[2])


def _rows(grouped: torch.Tensor, queries: slice) -> torch.Tensor:
    """Some of them as rows of one product: [key_value_heads, group · n, width]."""
    return grouped[queries].permute(1, 2, 0, 3).flatten(1, 2)


def _put(grouped: torch.Tensor, queries: slice, rows: torch.Tensor) -> None:
    """The inverse of `_rows`."""
    some = grouped[queries]
    some.copy_(rows.view(some.shape[1], some.shape[2], len(some), -1).permute(2, 0, 1, 3))


def _at(k: torch.Tensor, keys: slice | torch.Tensor) -> torch.Tensor:
    """Some keys or values: [key_value_heads, m, head_dim]."""
    return k[keys].transpose(0, 1)


def _add(dk: torch.Tensor, keys: slice | torch.Tensor, gradient: torch.Tensor) -> None:
    """Add [key_value_heads, m, head_dim] to the gradient of those keys or values."""
    if isinstance(keys, slice):
        dk[keys] += gradient.transpose(0, 1)
    else:
        dk.index_add_(0, keys, gradient.transpose(0, 1))


def _probabilities(queries: torch.Tensor, k: torch.Tensor, piece: AttentionPiece) -> torch.Tensor:
    """softmax(q kᵀ + bias): [key_value_heads, group · n, m]."""
    scores = torch.bmm(queries, _at(k, piece.keys).transpose(1, 2))
    if piece.bias is not None:
        n, m = piece.bias.shape
        scores.view(len(scores), -1, n, m).add_(piece.bias)
    return torch.softmax(scores, -1)
