"""What a run does with less when it was killed again and again before its next checkpoint.

On a phone that is most often the system, short of memory. Each halving saves the state twice as
often and computes half as many tokens at once. Checkpoints that come more often change no number
of the run; another number of tokens at once changes how sums are rounded, which the run's
environment notes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.evaluate import TOKENS_AT_ONCE
from trainer.spec import TrainingSettings

_FEWEST_TOKENS = 64
_SHORTEST_SECONDS = 5.0


@dataclass(frozen=True)
class Means:
    """How often the state is saved and how much is computed at once.

    A single example is never split: one that is longer than the tokens at once is computed alone,
    so the longest example is what no halving gets below.
    """

    checkpoint_every_steps: int
    checkpoint_every_seconds: float
    micro_batch_tokens: int
    evaluation_tokens: int


def means(settings: TrainingSettings, halvings: int) -> Means:
    """What the settings say, halved so many times, but never raised."""
    return Means(
        checkpoint_every_steps=max(1, settings.checkpoint_every_steps >> halvings),
        checkpoint_every_seconds=max(
            min(_SHORTEST_SECONDS, settings.checkpoint_every_seconds),
            settings.checkpoint_every_seconds / 2**halvings,
        ),
        micro_batch_tokens=_halved_tokens(settings.micro_batch_tokens, halvings),
        evaluation_tokens=_halved_tokens(TOKENS_AT_ONCE, halvings),
    )


def _halved_tokens(tokens: int, halvings: int) -> int:
    return max(min(_FEWEST_TOKENS, tokens), tokens >> halvings)
