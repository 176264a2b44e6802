"""What can go wrong with an engine or a product."""

from __future__ import annotations

from npu.ledger import Direction


class EngineError(RuntimeError):
    """An engine can't be opened or doesn't pass its self-test; the message is the cause."""


class ProductError(RuntimeError):
    """An engine could not deliver one product; the message is the cause."""


class NonFiniteInput(ValueError):  # noqa: N818  (it names what was found)
    """An activation or gradient holds NaN or an infinity; the training step must fail."""

    def __init__(self, matrix: str, direction: Direction) -> None:
        """Name the matrix and the direction of the refused product."""
        super().__init__(
            f"matrix '{matrix}', {direction}: expected finite values, found NaN or infinity: "
            "the step diverged, lower the learning rate"
        )
        self.matrix = matrix
        self.direction = direction


def one_line(error: BaseException) -> str:
    """A native library's message, often many lines long, as the cause in a report."""
    return " ".join(str(error).split())[:500]
