"""The worker as a child process, from the daemon's end of its pipes."""

from service.child_process import ChildProcess
from service.home import Home
from service.library_path import computing_environment
from service.settings import Settings

_EXAMPLES_CHANGED = b"examples\n"
_DUTY = b"duty %.3f\n"


class WorkerProcess(ChildProcess):
    """A running ``python -m trainer.worker``.

    If the daemon dies, it reads the end of its standard input, checkpoints and ends.
    """

    def __init__(self, settings: Settings, home: Home, run_id: int, halvings: int = 0) -> None:
        """Start the process.

        ``halvings``: how often its checkpoint interval and its memory budget are halved.

        Raises:
            OSError: it can't be started.
        """
        arguments = {
            "--home": home.path,
            "--run": run_id,
            "--nice": settings.nice,
            "--halvings": halvings,
        }
        super().__init__(
            "worker",
            settings.worker_module,
            [str(part) for option in arguments.items() for part in option],
            home.worker_log(run_id),
            computing_environment(settings, home),
        )

    def tell_examples_changed(self) -> None:
        """Make the worker look which of its examples still exist. Never waits for it."""
        self.tell(_EXAMPLES_CHANGED)

    def tell_duty(self, duty: float) -> None:
        """Let the worker work this share of the time, from its next step on. Never waits."""
        self.tell(_DUTY % duty)
