"""What the notification says. It stands where others can read it: no adapter, app, text or label.

Only the state of the one training: how far, how warm, how long.
"""

from collections.abc import Callable, Sequence

from api_schemas.versions import Metrics
from service.phone.notification import Message
from storage.tables import Run, Version

Buttons = tuple[tuple[str, str], ...]

_PHASES = {
    "loading": "loading the base model",
    "testing_engine": "testing the engine",
    "evaluating_before": "measuring the base model",
    "evaluating_after": "measuring the result",
    "evaluating_original": "measuring the result",
    "exporting": "writing the result",
}

_VERDICTS = {
    "promoted": "better than what there was",
    "rejected": "no better than what there was",
    "insufficient": "not measured well enough to say whether it is better",
}


class TimeLeft:
    """How long a run still trains, by the pace since it was first seen, its rests included."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` goes on while the phone sleeps."""
        self._clock = clock
        self._begin: tuple[int, int, float] | None = None  # run, step, time

    def seconds(self, run: Run) -> float | None:
        """None: it can't be told yet."""
        if run.phase != "training" or run.total_steps is None:
            self._begin = None
            return None
        now = self._clock()
        if self._begin is None or self._begin[0] != run.id or self._begin[1] > run.step:
            self._begin = (run.id, run.step, now)
        _, step, since = self._begin
        if run.step == step:
            return None
        return (now - since) / (run.step - step) * (run.total_steps - run.step)


def training_message(
    run: Run | None, temperature: float | None, seconds_left: float | None, buttons: Buttons
) -> Message:
    """A run is being trained."""
    parts = [_progress(run)]
    if temperature is not None:
        parts.append(f"{temperature:.1f} °C")
    if seconds_left is not None:
        parts.append(_about(seconds_left))
    stage = None if run is None else run.phase
    return Message("training", "lorad is training", ", ".join(parts), buttons, stage)


def paused_message(until: str | None, buttons: Buttons) -> Message:
    """All training is paused until then; None: until it is resumed."""
    end = "you resume it" if until is None else until
    return Message("paused", "lorad is paused", f"no training until {end}", buttons)


def result_message(made: Sequence[Version]) -> Message | None:
    """The last word: what these versions, the last hours' work, came to; None: there are none."""
    if not made:
        return None
    better = [version for version in made if version.verdict == "promoted"]
    if len(made) == 1:
        words = f"a new version is ready, {_VERDICTS[made[0].verdict]}"
    else:
        words = f"{len(made)} new versions are ready, {len(better)} better than what there was"
    if len(better) == 1:
        words += _gain(Metrics.model_validate(better[0].metrics))
    return Message(None, "lorad has trained", words)


def _progress(run: Run | None) -> str:
    if run is None or run.phase is None:
        return "starting"
    if run.phase == "training" and run.total_steps:
        return f"step {run.step}/{run.total_steps} ({100 * run.step // run.total_steps} %)"
    words = _PHASES.get(run.phase, "training")
    if run.evaluating_total:
        words += f" ({100 * (run.evaluated or 0) // run.evaluating_total} %)"
    return words


def _about(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    hours, minutes = divmod(minutes, 60)
    return f"about {hours} h {minutes} min" if hours else f"about {minutes} min"


def _gain(metrics: Metrics) -> str:
    before, after = (metrics.active or metrics.before).accuracy, metrics.after.accuracy
    if before is None or after is None:
        return ""
    return f": {100 * before:.0f} % -> {100 * after:.0f} % right"
