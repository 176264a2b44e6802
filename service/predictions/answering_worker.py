"""The training worker as one that answers between its steps."""

from typing import Any

from service.predictions.question import line_of
from service.runs.hang import HangWatch
from service.runs.worker_process import WorkerProcess

_PREDICT = b"predict "


class AnsweringWorker:
    """A training worker that may be asked what concerns the base model it has loaded."""

    def __init__(self, worker: WorkerProcess, watch: HangWatch, base_hash: str | None) -> None:
        """``watch`` is told while a question is under way: its time is no silence of training."""
        self._worker = worker
        self._watch = watch
        self.base_hash = base_hash

    def ask(self, message: dict[str, Any]) -> None:
        """Send a question, or what is to become of one. Never waits."""
        self._watch.answer(True)
        self._worker.tell(_PREDICT + line_of(message))

    def done(self) -> None:
        """The question is over."""
        self._watch.answer(False)

    def give_up(self) -> None:
        """Leave it alone: it has been told, and a training isn't killed for a prediction."""
