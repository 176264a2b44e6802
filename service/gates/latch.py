"""A latch: it closes at once, and for a while stays closed."""


class Latch:
    """Open or closed; two openings are never less than the cool-down apart.

    It begins closed, and its first opening waits for nothing.
    """

    def __init__(self, cool_down: float) -> None:
        """Stay closed for at least ``cool_down`` seconds after each closing."""
        self._cool_down = cool_down
        self._closed_at: float | None = None
        self.open = False

    def update(self, good: bool, now: float) -> None:
        """Close unless ``good``; open if it is and the cool-down is over. ``now`` in seconds."""
        if not good:
            if self.open:
                self._closed_at = now
            self.open = False
        elif not self.open:
            self.open = self.wait(now) == 0

    def wait(self, now: float) -> float:
        """Seconds of the cool-down that are left."""
        if self._closed_at is None:
            return 0.0
        return max(0.0, self._closed_at + self._cool_down - now)
