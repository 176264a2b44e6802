"""The user's pause of all training: there is one or none, and it may end by itself."""

from datetime import UTC, datetime

from sqlmodel import Session

from storage import history
from storage.clock import now_ms
from storage.ledgers import TrainingPause

_ONLY_ROW = 1


def begin(session: Session, until_ms: int | None) -> TrainingPause:
    """Pause training until this time; None: until `end`. One that is active only changes its end.

    A pause that is asked for twice is one, and noted once.
    """
    lapse(session, now_ms())
    pause = session.get(TrainingPause, _ONLY_ROW)
    if pause is not None and pause.until == until_ms:
        return pause
    if pause is None:
        pause = TrainingPause()
    pause.until = until_ms
    session.add(pause)
    words = "it is resumed" if until_ms is None else _words(until_ms)
    history.add(session, "training-paused", f"all training is paused until {words}")
    session.flush()
    return pause


def end(session: Session) -> bool:
    """Let training go on; whether it was paused."""
    if lapse(session, now_ms()) or (pause := session.get(TrainingPause, _ONLY_ROW)) is None:
        return False
    session.delete(pause)
    history.add(session, "training-resumed", "training may proceed: the pause was ended")
    session.flush()
    return True


def active(session: Session, now_ms: int) -> TrainingPause | None:
    """The pause that holds at this time; one whose end has come is none."""
    pause = session.get(TrainingPause, _ONLY_ROW)
    return None if pause is None or _has_passed(pause, now_ms) else pause


def has_lapsed(session: Session, now_ms: int) -> bool:
    """Whether a pause has ended by itself that `lapse` has not noted yet."""
    pause = session.get(TrainingPause, _ONLY_ROW)
    return pause is not None and _has_passed(pause, now_ms)


def lapse(session: Session, now_ms: int) -> bool:
    """Note that a pause has ended by itself, if one has since this was last asked."""
    pause = session.get(TrainingPause, _ONLY_ROW)
    if pause is None or pause.until is None or not _has_passed(pause, now_ms):
        return False
    session.delete(pause)
    message = f"training may proceed: the pause until {_words(pause.until)} is over"
    history.add(session, "training-resumed", message)
    session.flush()
    return True


def _has_passed(pause: TrainingPause, now_ms: int) -> bool:
    return pause.until is not None and pause.until <= now_ms


def _words(milliseconds: int) -> str:
    local = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S %Z}"
