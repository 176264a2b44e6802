"""Several token sequences as one, without padding and without computing a shared start twice.

A packed sequence is a tree of segments. A token attends to itself, to the earlier tokens of its own
segment and to all of its segment's ancestors, and its position counts along that path; so each
path from the root reads exactly like a sequence of its own:

    system prompt ──┬── input 1 ──┬── label "now"
                    │             └── label "later"
                    └── input 2 ── …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Packed:
    """T tokens of a segment tree, ready for the decoder."""

    ids: torch.Tensor
    """Token ids, int64 [T]."""
    positions: torch.Tensor
    """Position of each token on its path from the root, int64 [T]."""
    mask: torch.Tensor
    """bool [T, T]; row i is True where token i may attend."""


@dataclass
class SegmentTree:
    """Builds a `Packed`: add segments, parents first."""

    _tokens: list[int] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)
    _segment_of: list[int] = field(default_factory=list)
    _ancestors: list[list[int]] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)

    def add(self, tokens: Sequence[int], parent: int | None = None) -> int:
        """Append a segment (it may be empty) below `parent`, or as a root.

        Returns:
            The segment's number, to be given as the parent of others.
        """
        number = len(self._ancestors)
        start = 0 if parent is None else self._lengths[parent]
        self._ancestors.append([number] if parent is None else [*self._ancestors[parent], number])
        self._lengths.append(start + len(tokens))
        self._tokens.extend(tokens)
        self._positions.extend(range(start, start + len(tokens)))
        self._segment_of.extend([number] * len(tokens))
        inherited = -1 if parent is None else self._ends[parent]
        self._ends.append(len(self._tokens) - 1 if tokens else inherited)
        return number

    def last_row(self, segment: int) -> int:
        """Row of the last token on the path that ends with this segment."""
        return self._ends[segment]

    def __len__(self) -> int:
        """Tokens so far."""
        return len(self._tokens)

    def pack(self) -> Packed:
        """The finished sequence."""
        positions = torch.tensor(self._positions, dtype=torch.int64)
        segment_of = torch.tensor(self._segment_of, dtype=torch.int64)
        related = torch.zeros(len(self._ancestors), len(self._ancestors), dtype=torch.bool)
        for segment, ancestors in enumerate(self._ancestors):
            related[segment, ancestors] = True
        mask = related[segment_of][:, segment_of] & (positions[:, None] >= positions[None, :])
        return Packed(torch.tensor(self._tokens, dtype=torch.int64), positions, mask)


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all the sequences share."""
    shortest = min((len(sequence) for sequence in sequences), default=0)
    for index in range(shortest):
        if any(sequence[index] != sequences[0][index] for sequence in sequences):
            return index
    return shortest
