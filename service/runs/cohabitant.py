"""Who else may hold torch, and makes room for a training."""

from typing import Protocol

from service.predictions.answering_worker import AnsweringWorker


class Cohabitant(Protocol):
    """What the supervisor asks of the desk of predictions."""

    @property
    def holds_lock(self) -> bool:
        """Whether it has worker.lock now; it writes nothing into the home."""
        ...

    def make_room(self) -> None:
        """Give worker.lock back, and don't take it again."""
        ...

    def room_again(self) -> None:
        """The lock may be taken: nothing is to be trained for now."""
        ...

    def forget(self) -> None:
        """Something of what it may have read is deleted."""
        ...

    def worker_began(self, worker: AnsweringWorker) -> None:
        """This worker trains now."""
        ...

    def worker_ended(self) -> None:
        """It has ended."""
        ...

    def worker_said(self, line: bytes) -> None:
        """A line about a prediction came from the training worker."""
        ...


class Nobody:
    """Where nothing predicts."""

    holds_lock = False

    def make_room(self) -> None:
        """There is room."""

    def room_again(self) -> None:
        """There was all the time."""

    def forget(self) -> None:
        """Nothing was read."""

    def worker_began(self, worker: AnsweringWorker) -> None:
        """It won't be asked."""

    def worker_ended(self) -> None:
        """It wasn't asked."""

    def worker_said(self, line: bytes) -> None:
        """It wasn't asked."""
