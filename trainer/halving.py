"""What a run does with less when it was killed again and again before its next checkpoint.

On a phone that is most often the system, short of memory. Each halving saves the state twice as
often and leaves half as much memory to what can be computed with less (`trainer.plan`). Checkpoints
that come more often change no number of the run; other numbers of tokens at once change how sums
are rounded, which the run's environment notes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.spec import TrainingSettings

_FEWEST_TOKENS = 64
_SHORTEST_SECONDS = 5.0


@dataclass(frozen=True)
class Intervals:
    """How often the state is saved."""

    checkpoint_every_steps: int
    checkpoint_every_seconds: float


def halved_intervals(settings: TrainingSettings, halvings: int) -> Intervals:
    """What the settings say, halved so many times, but never raised."""
    return Intervals(
        checkpoint_every_steps=max(1, settings.checkpoint_every_steps >> halvings),
        checkpoint_every_seconds=max(
            min(_SHORTEST_SECONDS, settings.checkpoint_every_seconds),
            settings.checkpoint_every_seconds / 2**halvings,
        ),
    )


def halved_tokens(tokens: int, halvings: int) -> int:
    """Half as many so often, but not below 64 unless they were fewer already."""
    return max(min(_FEWEST_TOKENS, tokens), tokens >> halvings)
