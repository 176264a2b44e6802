"""How far an adapter's gradients have moved from what they should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Change:
    """Of all the adapter's gradients together, and of the tensor that suffers most."""

    change: float
    """||g' - g|| / ||g||, Frobenius."""
    cosine: float
    """Of the angle between g' and g."""
    worst_tensor: str
    """PEFT's name of the tensor whose own change is the largest."""
    worst_change: float


class ReferenceGradient:
    """The gradients to compare with, and where each tensor lies in them."""

    def __init__(self, names: list[str], sizes: list[int], gradient: npt.NDArray[np.float32]):
        """Take the tensors' names, their numbers of elements and all of them, flat, in order."""
        self._names = names
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._gradient = gradient.astype(np.float64)
        self._squares = self._sums(self._gradient**2)
        silent = [n for n, square in zip(names, self._squares, strict=True) if not square > 0]
        if silent:
            raise ValueError(
                f"expected a gradient of every tensor, found none of {silent[0]}: "
                "calibrate with other texts"
            )

    def change(self, gradient: npt.NDArray[np.float32]) -> Change:
        """Of another flat `gradient` of the same tensors."""
        other = gradient.astype(np.float64)
        squares = self._sums((other - self._gradient) ** 2)
        each = np.sqrt(squares / self._squares)
        worst = int(each.argmax())
        size = float(np.sqrt(self._squares.sum()))
        length = float(np.sqrt(other @ other))
        return Change(
            change=float(np.sqrt(squares.sum())) / size,
            cosine=float(other @ self._gradient) / (size * length) if length else 0.0,
            worst_tensor=self._names[worst],
            worst_change=float(each[worst]),
        )

    def _sums(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.add.reduceat(values, self._starts)
