"""The child that predicts, from the daemon's end of its pipes."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from service.child_process import ChildProcess
from service.door.problems import Refusal, not_now
from service.home import Home
from service.library_path import computing_environment
from service.predictions.events import Event, EventError, Failed, Ready, parse
from service.predictions.question import line_of
from service.settings import Settings

GONE_RETRY_SECONDS = 2
"""When to ask again, if what was asked has ended meanwhile."""

_REAPED_SECONDS = 5.0

_log = logging.getLogger("lorad.predictor")


class PredictorProcess(ChildProcess):
    """A running ``python -m trainer.predictor``, which dies with the thread that starts it.

    It is started through `npu.with_parent`: however the daemon ends, nothing of it is left.
    """

    def __init__(
        self,
        settings: Settings,
        home: Home,
        deliver: Callable[["PredictorProcess", Event | Refusal], None],
    ) -> None:
        """Start it; what it says is given to ``deliver``, in a thread of its own.

        At last, when it has ended, what the question under way gets: a refusal.

        Raises:
            OSError: it can't be started.
        """
        super().__init__(
            "predictor",
            "npu.with_parent",
            [
                *(str(os.getpid()), settings.predictor_module, str(home.path)),
                *("--nice", str(settings.nice), "--memory-mb", str(settings.memory_mb)),
            ],
            home.predictor_log,
            computing_environment(settings, home),
        )
        self._deliver = deliver
        self.ready = False
        """Whether it has said that it listens, and so holds worker.lock."""
        self.gone = False
        """Whether it has closed its end."""
        self._reader = threading.Thread(target=self._listen, name="lorad-predictor", daemon=True)
        self._reader.start()

    def ask(self, message: dict[str, Any]) -> None:
        """Send a question, or what is to become of one. Never waits."""
        self.tell(line_of(message))

    def done(self) -> None:
        """The question is over."""

    def give_up(self) -> None:
        """Kill it: it doesn't heed what it is told."""
        self.kill()

    def end(self, kill_after: float) -> bool:
        """End it in order, or after so many seconds by SIGKILL; whether it is gone then."""
        self.ask_to_stop(kill_after)
        if self.wait(kill_after + _REAPED_SECONDS) is None:
            return False
        self._reader.join(_REAPED_SECONDS)
        self.close()
        return True

    def _listen(self) -> None:
        failure: str | None = None
        for line in self.lines():
            try:
                event = parse(line)
            except EventError as error:
                _log.error("the predictor said what is not an event: %s", error)
                failure = "it said what this daemon doesn't understand; its log says more"
                self.kill()  # whoever waits for the answer would wait in vain
                continue
            if isinstance(event, Ready):
                self.ready = True
            if isinstance(event, Failed):
                failure = event.error
            self._deliver(self, event)
        self.gone = True
        self._deliver(self, self._end(failure))

    def _end(self, failure: str | None) -> Refusal:
        code = self.wait(_REAPED_SECONDS)
        if failure is not None:
            return Refusal(502, f"the process that predicts has failed: {failure}")
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            why = f"the process that predicts was killed by {name}; ask again"
            return not_now(why, GONE_RETRY_SECONDS)
        return Refusal(
            502, f"the process that predicts has ended with {code}; predictor.log says more"
        )
