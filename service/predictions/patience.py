"""How much longer an answer is waited for, and what is said when that is over."""


class Patience:
    """Seconds that are counted down by whoever waits, in small slices.

    Not read off a clock: of the time that the daemon itself was suspended or frozen, together with
    what it waits for, one slice at most is counted.
    """

    def __init__(self, seconds: float) -> None:
        """Wait so long for each sign of life."""
        self._whole = self.left = seconds
        self.because: str | None = None
        """What cut it short."""

    def shorten(self, seconds: float, because: str) -> None:
        """Wait no longer than ``seconds`` from now on, unless it has been cut short before."""
        if self.because is None:
            self.because = because
            self.left = min(self.left, seconds)

    def pass_time(self, seconds: float) -> None:
        """Count so much of it."""
        self.left -= seconds

    def sign_of_life(self) -> None:
        """Begin anew, unless it was cut short."""
        if self.because is None:
            self.left = self._whole
