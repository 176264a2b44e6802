"""The seam between the training loop and how gradients are found.

The loop owns the data order, the optimizer, the checkpoints and the measurements. A method only
fills the adapter's gradients for one batch. `first_order` backpropagates; a forward-gradient method
can stand beside it without the loop noticing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.dataset import TokenExample


@dataclass(frozen=True)
class BatchResult:
    """What one batch cost and said."""

    loss: float
    """Mean cross-entropy over the batch's answer tokens, natural log."""
    tokens: int
    """Tokens that went through the layers."""
    label_tokens: int
    """Tokens that carried loss."""


class Method(Protocol):
    """A way of finding the adapter's gradients."""

    name: str

    def accumulate(self, batch: Sequence[TokenExample]) -> BatchResult:
        """Leave the gradient of the batch's mean token loss in the adapter's `gradient`."""
        ...
