"""What the workers have done since the daemon began: steps, tokens, seconds."""

import threading

from service.metrics.exposition import Exposition
from service.runs.worker_events import Event, Step


class Work:
    """Counts what workers say. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begin with nothing done."""
        self._lock = threading.Lock()
        self._steps = self._tokens = self._label_tokens = 0
        self._seconds = 0.0

    def note(self, event: Event) -> None:
        """A worker has said this; only steps count. One that is done twice counts twice."""
        if not isinstance(event, Step):
            return
        with self._lock:
            self._steps += 1
            self._tokens += event.tokens
            self._label_tokens += event.label_tokens
            self._seconds += event.seconds

    def write(self, page: Exposition) -> None:
        """Put it on the page."""
        with self._lock:
            values = (self._steps, self._tokens, self._label_tokens, self._seconds)
        told = (
            ("lorad_training_steps_total", "Optimizer steps done since the daemon began."),
            ("lorad_training_tokens_total", "Tokens of their batches, prompts included."),
            ("lorad_training_label_tokens_total", "Tokens of their batches that carry loss."),
            ("lorad_training_step_seconds_total", "Seconds that these steps computed."),
        )
        for (name, meaning), value in zip(told, values, strict=True):
            page.one(name, "counter", meaning, value)
