"""Which token comes next: the likeliest, or one drawn from the likelier ones.

    p = softmax(logits / temperature), of which the fewest whose sum reaches top_p stay

The order of the two, and the token at which top_p is reached staying, are as in `transformers`.
Each text draws from a generator of its own, so that no other text changes it.
"""

from __future__ import annotations

import torch


class Sampler:
    """Chooses the tokens of one text."""

    def __init__(self, temperature: float, top_p: float, seed: int) -> None:
        """`temperature` 0 always takes the likeliest, and of equals the first."""
        self._temperature, self._top_p = temperature, top_p
        self._generator = torch.Generator().manual_seed(seed)

    def choose(self, logits: torch.Tensor) -> int:
        """The next token after these logits [V].

        Raises:
            FloatingPointError: if one isn't finite.
        """
        if not logits.isfinite().all():
            raise FloatingPointError("expected finite logits of the next token, found others")
        if self._temperature == 0:
            return int(logits.argmax())
        sums = filtered(logits, self._temperature, self._top_p).cumsum(0)
        drawn = torch.rand((), generator=self._generator, dtype=torch.float64) * sums[-1]
        # The first whose sum is above; a token without probability adds nothing to its sum.
        place = int(torch.searchsorted(sums, drawn, right=True))
        return place if place < len(sums) else int(torch.searchsorted(sums, sums[-1]))


def filtered(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """What each token is drawn with, float64 [V]; zero for those that are left out."""
    probabilities = torch.softmax(logits.double() / temperature, -1)
    if top_p >= 1:
        return probabilities
    ordered, places = probabilities.sort(descending=True, stable=True)
    before = ordered.cumsum(0) - ordered
    ordered[before >= top_p] = 0
    ordered[0] = max(float(ordered[0]), torch.finfo(torch.float64).tiny)
    kept = torch.zeros_like(probabilities).scatter_(0, places, ordered)
    return kept / kept.sum()
