"""Keys and values of a conversation's tokens, so that each token is computed once.

    prompt, a piece at a time ─▶ decoder.hidden(cache.packed(piece), …, cache=cache)
    token by token            ─▶ the same with one id        keys, values [L, capacity, heads, size]

One conversation, one adapter: what a token's keys are depends on all before it and on the adapter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.models.config import DecoderConfig
from trainer.packing import Packed


class KeyValueCache:
    """Of at most `capacity` tokens, empty at first."""

    def __init__(self, config: DecoderConfig, capacity: int) -> None:
        """Set memory aside; it is taken as tokens come."""
        shape = (config.num_hidden_layers, capacity, config.num_key_value_heads, config.head_dim)
        self._keys, self._values = torch.empty(shape), torch.empty(shape)
        self._lengths = [0] * config.num_hidden_layers
        self._capacity = capacity

    @staticmethod
    def bytes_for(config: DecoderConfig, tokens: int) -> int:
        """What the keys and values of so many tokens take."""
        return 2 * 4 * config.num_hidden_layers * config.key_value_width * tokens

    def __len__(self) -> int:
        """Tokens that went through all layers."""
        return self._lengths[-1]

    def packed(self, ids: Sequence[int]) -> Packed:
        """The next tokens, T of them; each sees itself and all before it: mask [T, length + T].

        Raises:
            ValueError: if there is no room for them.
        """
        start, end = len(self), len(self) + len(ids)
        if end > self._capacity:
            raise ValueError(f"expected at most {self._capacity} tokens, found {end}")
        positions = torch.arange(start, end)
        mask = positions[:, None] >= torch.arange(end)[None, :]
        return Packed(torch.tensor(ids, dtype=torch.int64), positions, mask)

    def extend(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take in the next tokens' rotated keys and values, [T, heads, size]; those of all."""
        start = self._lengths[layer]
        end = self._lengths[layer] = start + len(keys)
        self._keys[layer, start:end] = keys
        self._values[layer, start:end] = values
        return self._keys[layer, :end], self._values[layer, :end]
