"""What a forward pass keeps for its backward pass, in memory of its own that is used over and over.

Tensors that live from a layer's forward to its backward pass, laid among the short-lived ones of
every layer, leave an allocator's heap full of holes or, each mapped by itself, cost a page fault
every 4 KiB, every time. So they are copied into one piece of memory, one behind the other:

    │ x₀ │ qkv₀ │ attended₀ │ middle₀ │ gate_up₀ │ x₁ │ qkv₁ │ …

and behind each product what the adapters made of its input.
"""

from __future__ import annotations

import torch

from trainer.models.config import DecoderConfig


def numbers_kept(config: DecoderConfig, layers: int, ranks: int, whole: int, inputs: int) -> int:
    """How many numbers the largest pass keeps.

    Args:
        config: the base model's.
        layers: how many are adapted.
        ranks: of all adapters of a layer together.
        whole: tokens of the largest pass of which all is kept that the backward pass needs.
        inputs: the same of which each layer's input is kept.
    """
    attention = 2 * config.query_width + 2 * config.key_value_width
    products = attention + config.hidden_size + 2 * config.intermediate_size + ranks
    hidden = config.hidden_size
    return max(whole * (layers * (hidden + products) + hidden), inputs * (layers + 1) * hidden)


class Keep:
    """Room for one pass at a time; pages of it that no pass has reached cost nothing."""

    def __init__(self, numbers: int, dtype: torch.dtype = torch.float32) -> None:
        """Room for so many numbers."""
        self._room = torch.empty(numbers, dtype=dtype)
        self._used = 0

    def begin(self) -> None:
        """Whatever was kept may be overwritten from here on."""
        self._used = 0

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers, here; the tensor itself if there is no room for it."""
        end = self._used + tensor.numel()
        if end > len(self._room):
            return tensor
        kept = self._room[self._used : end].view(tensor.shape)
        self._used = end
        return kept.copy_(tensor)
