"""The outlook: how it is with every adapter at one moment, and what holds up those that are due."""

from collections.abc import Callable
from dataclasses import dataclass

from service.nights.chooser import Chosen
from service.nights.moment import Moment
from service.nights.selection import Standing


@dataclass(frozen=True)
class Outlook:
    """One moment as the status tells it.

    ``refusal`` is the gatekeeper's; ``in_training`` whether anything is being trained;
    ``waiting_because`` the supervisor's reason for not starting a run that may be.
    """

    moment: Moment
    standings: dict[int, Standing]
    chosen: Chosen | None
    in_training: bool
    refusal: Callable[[bool], str | None]
    waiting_because: str | None
