"""The layers below the adapted ones, computed once per example instead of at every step.

    layers 0 … L-k-1, frozen, nothing adapted ──▶ rows [T, hidden] ──▶ layers L-k … L-1, adapted
         one example at a time                     kept, read back      packed, as ever

An adapter in the top k layers leaves the activations below as they are, whatever it learns, so that
they can be kept from step to step and from run to run. The numbers must not depend on what happens
to be kept: the rows of an example are always computed from its own tokens alone, prompt and
answer[:-1], never in a pack, and always taken in the form in which they are kept. Kept, without
room, or computed again after a kill, they have the same bits.

A run of one step after the other, as `FirstOrder` wants it:

    files = PrefixFiles(folder, prefix_name(base_hash, layers, environment), limit_bytes=1 << 30)
    cache = PrefixCache(decoder, layers=adapter.layers.start, files=files)
    FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=True, below=cache.rows)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from trainer.dataset import TokenExample
from trainer.models.decoder import Decoder
from trainer.packing import SegmentTree
from trainer.prefix_files import PrefixFiles, Rows


class PrefixCache:
    """The rows of examples below the adapted layers, kept in files as far as there is room."""

    def __init__(self, decoder: Decoder, layers: int, files: PrefixFiles) -> None:
        """Keep what the first `layers` layers of the bare base model give on."""
        self._decoder, self._layers, self._files = decoder, layers, files
        self._read = 0
        self._computed = 0

    def rows(self, examples: Sequence[TokenExample], shared: int) -> torch.Tensor:
        """The rows [T, hidden_size] of a packed sequence (`trainer.loss.pack_for_loss`).

        Args:
            examples: of one packed sequence, in order.
            shared: how many tokens all their prompts begin with; their rows are the first
                example's.
        """
        made: dict[int, tuple[tuple[int, ...], Rows]] = {}
        parts = []
        for example in examples:
            tokens = (*example.prompt, *example.answer[:-1])
            rows = self._files.read(example.id, tokens, self._decoder.config.hidden_size)
            if rows is None:
                rows, whole = self._compute(tokens)
                if whole:
                    made[example.id] = tokens, rows
            else:
                self._read += 1
            parts.append(torch.from_numpy(rows))
        if made:
            self._files.keep(made)
        return torch.cat([parts[0][:shared], *(part[shared:] for part in parts)])

    def report(self) -> dict[str, Any]:
        """What this process read and computed, and what is kept, JSON-able."""
        return {
            "layers_below": self._layers,
            "read": self._read,
            "computed": self._computed,
            **self._files.report(),
        }

    def _compute(self, tokens: Sequence[int]) -> tuple[Rows, bool]:
        """The rows, and whether the engine computed them all itself, as it would again."""
        tree = SegmentTree()
        tree.add(tokens)
        ledger = self._decoder.engine.ledger
        fallbacks = ledger.fallbacks
        rows = self._decoder.below(tree.pack(), self._layers)
        self._computed += 1
        whole = ledger.given_up is None and ledger.fallbacks == fallbacks
        return np.ascontiguousarray(rows.numpy(), "<f4"), whole
