"""The notification: one, under one id, changed seldom, since each call starts processes."""

from collections.abc import Callable
from dataclasses import dataclass

from service.phone.command import Command
from service.phone.left_behind import Kind, LeftBehind

SHOW = "termux-notification"
REMOVE = "termux-notification-remove"
ID = "lorad"
REFRESH_SECONDS = 60.0
"""A new text of the same kind and stage waits for so long; a new kind is shown at once."""
STAGE_SECONDS = 10.0
"""A new stage of the same kind waits for so long."""


@dataclass(frozen=True)
class Message:
    """What to show. ``kind`` None: a last word, which nobody takes back.

    ``stage`` is how far something of that kind is. ``buttons`` are labels with the commands that
    Android has run by `dash -c`.
    """

    kind: Kind | None
    title: str
    content: str
    buttons: tuple[tuple[str, str], ...] = ()
    stage: str | None = None

    def arguments(self) -> list[str]:
        """Those of `termux-notification`. Without a content it would read one from its input."""
        told = ["--id", ID, "--title", self.title, "--content", self.content]
        told += ["--priority", "low", "--alert-once"]
        if self.kind == "training":
            told.append("--ongoing")  # not to be swiped away
        for number, (label, command) in enumerate(self.buttons, 1):
            told += [f"--button{number}", label, f"--button{number}-action", command]
        return told


class Notification:
    """Shows messages and takes them back. For one thread at a time."""

    def __init__(
        self,
        *,
        enabled: bool,
        left: LeftBehind,
        show: Command,
        remove: Command,
        clock: Callable[[], float],
    ) -> None:
        """``left`` says what an earlier daemon left on the screen."""
        self._enabled = enabled
        self._left = left
        self._show = show
        self._remove = remove
        self._clock = clock
        self._last: Message | None = None
        self._shown_at = 0.0

    @property
    def shown(self) -> Kind | None:
        """What stands on the screen that is to be replaced or removed."""
        return self._left.things.notification

    @property
    def usable(self) -> bool:
        """Whether any is to be shown on this device."""
        return self._enabled and self._show.installed and self._remove.installed

    def put(self, message: Message) -> float | None:
        """Show it, if it is time to; in how many seconds it is, else."""
        if not self.usable or (message.kind is None and self.shown is None):
            return None
        wait = max(self._show.wait, self._rest(message))
        if wait > 0:
            return wait
        if message.kind is not None:
            self._left.change(notification=message.kind)
        if not self._show.call(*message.arguments()):
            return self._show.wait
        self._last, self._shown_at = message, self._clock()
        if message.kind is None:
            self._left.change(notification=None)
        return None

    def take_back(self, *, at_last: bool = False) -> float | None:
        """Remove what is shown; in how many seconds to try again. ``at_last``: try it now."""
        if self.shown is None:
            return None
        if self._remove.wait > 0 and not at_last:
            return self._remove.wait
        if not self._remove.call(ID):
            return self._remove.wait
        self._left.change(notification=None)
        self._last = None
        return None

    def _rest(self, message: Message) -> float:
        """How long what stands there is to stay before this replaces it."""
        if message.kind != self.shown:
            return 0.0
        if self._last is None:  # an earlier daemon showed it; a pause may have been swiped away
            return REFRESH_SECONDS if message.kind == "paused" else 0.0
        if message.content == self._last.content:
            return REFRESH_SECONDS
        gap = REFRESH_SECONDS if message.stage == self._last.stage else STAGE_SECONDS
        return self._shown_at + gap - self._clock()
