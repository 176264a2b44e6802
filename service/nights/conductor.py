"""The conductor: every tick it looks at the moment and lets training begin, go on or stop."""

from service.runs.supervisor import Supervisor


class Conductor:
    """One look at a time, from the ticker's thread."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Conduct the supervisor's runs."""
        self._supervisor = supervisor

    def nudge(self) -> None:
        """Look again soon: something has changed that decides who may train. Never waits."""
        self._supervisor.wake()
