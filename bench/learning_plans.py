"""What the learning bench tries: for real, and on little to see that it runs.

The film tags' numbers were found on the cuts of the histories, with the first seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.learning_student import AdapterShape
from trainer.spec import TrainingSettings


@dataclass(frozen=True)
class IntentPlan:
    """Of the intents."""

    intents: int
    history: int
    """Rows to learn from."""
    queries: int
    shape: AdapterShape
    settings: TrainingSettings
    epochs: tuple[float, ...]
    """Chosen from on the cut of the history."""
    top: int
    """Layers of the adapter that is only at the top."""
    rates: tuple[float, ...]
    """Of forward-only training; chosen from on the cut, after `rate_steps` steps."""
    rate_steps: int


@dataclass(frozen=True)
class TagPlan:
    """Of the film tags."""

    shape: AdapterShape
    donors: TrainingSettings
    personal: TrainingSettings
    """Of one pass; the steps are as many as a user's rows make."""
    passes: tuple[int, ...]
    """Over a user's history, chosen from on the cuts; 0 leaves the task adapter as it is."""
    newest: int
    """Rows of a history that are trained on."""


INTENTS = IntentPlan(
    intents=15,
    history=300,
    queries=150,
    shape=AdapterShape(),
    settings=TrainingSettings(),
    epochs=(2.0, 3.0),
    top=8,
    rates=(1e2, 1e3, 1e4, 1e5),
    rate_steps=10,
)
TAGS = TagPlan(
    shape=AdapterShape(rank=16, alpha=32.0),
    donors=TrainingSettings(epochs=2.0, learning_rate=1e-3),
    personal=TrainingSettings(batch_size=4, learning_rate=5e-4, schedule="constant"),
    passes=(0, 1),
    newest=16,
)

_SHORT = TrainingSettings(batch_size=4, steps=4, learning_rate=1e-2)
QUICK_INTENTS = replace(
    INTENTS,
    intents=3,
    history=20,
    queries=6,
    shape=AdapterShape(rank=2, alpha=4.0),
    settings=_SHORT,
    epochs=(1.0,),
    top=1,
    rates=(1e2, 1e3),
    rate_steps=1,
)
QUICK_TAGS = replace(
    TAGS,
    shape=AdapterShape(rank=2, alpha=4.0),
    donors=_SHORT,
    personal=replace(_SHORT, schedule="constant"),
    passes=(0, 1),
    newest=4,
)
