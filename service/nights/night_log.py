"""Nights and gates in the history: what opened, what closed, and what a night was used for.

The entries about the whole daemon name no adapter; each adapter's own entry is its client's.
"""

from dataclasses import replace

from sqlmodel import Session

from service.gates.changes import ChangeKind, changes
from service.gates.verdict import GateVerdict
from service.nights.moment import Moment
from storage import adapters, history, nights
from storage.ledgers import Night


class GateLog:
    """Tells each gate's changes since they were last told."""

    def __init__(self) -> None:
        """At first only closed gates are news."""
        self._told: tuple[GateVerdict, ...] = ()

    def news(self, verdicts: tuple[GateVerdict, ...]) -> list[tuple[ChangeKind, str]]:
        """Kind and message of each change; they count as told from now on."""
        before = self._told or tuple(replace(one, open=True, overridable=False) for one in verdicts)
        self._told = verdicts
        return list(changes(before, verdicts))


def note_opened(session: Session, night: Night, moment: Moment) -> None:
    """That a window has opened."""
    assert moment.opening is not None
    history.add(
        session,
        "window-opened",
        f"the window of {night.key} is open until {moment.local(moment.opening.ends)}",
    )


def note_closed(session: Session, night: Night, moment: Moment) -> None:
    """That a window has closed, what its night was used for, and what the battery did."""
    used = nights.usage(session, night.id)
    for adapter_id, seconds in used.items():
        adapter = adapters.by_id(session, adapter_id)
        if adapter is not None:
            words = f"in the night of {night.key} it was trained for {_duration(seconds)}"
            history.add(session, "night-ended", words, adapter.client_id, adapter.name)
    closed = f"the window of {night.key} is closed; {moment.next_window()}"
    history.add(session, "window-closed", closed)
    history.add(session, "night-ended", f"in the night of {night.key} {_whole(night, used)}")


def _whole(night: Night, used: dict[int, float]) -> str:
    if not used:
        words = "nothing was trained"
    else:
        count = "one adapter was" if len(used) == 1 else f"{len(used)} adapters were"
        words = f"{count} trained for {_duration(sum(used.values()))}"
        words += " in all" if len(used) > 1 else ""
    if night.first_level is not None and night.last_level is not None:
        words += f"; battery from {night.first_level:.0f} % to {night.last_level:.0f} %"
    if night.hottest is not None:
        words += f", {night.hottest:.1f} °C at the hottest"
    return words


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    return "a minute" if minutes == 1 else f"{minutes} minutes"
