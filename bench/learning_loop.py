"""The steps of a training in the learning bench, whatever takes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from trainer.dataset import TokenExample, batch_ids
from trainer.optimizer import learning_rate_at
from trainer.spec import TrainingSettings

Step = Callable[[list[TokenExample], float], tuple[float, int]]
"""Takes a step on a batch at a learning rate; the batch's loss, and the tokens it cost."""


def take_steps(
    data: Mapping[int, TokenExample],
    settings: TrainingSettings,
    peak: float,
    step: Step,
    after_step: Callable[[int], None] = lambda step: None,
) -> tuple[list[float], int, float]:
    """All steps that the settings ask for, over `data` by example id, at a peak rate of `peak`.

    `after_step(steps done)` isn't counted in the seconds.

    Returns:
        Each step's loss, the tokens of all, and CPU seconds of this process.
    """
    total = settings.total_steps(len(data))
    losses, tokens, seconds = [], 0, 0.0
    for number in range(total):
        began = time.process_time()
        ids = batch_ids(list(data), settings.seed, settings.batch_size, number)
        rate = learning_rate_at(number, total, peak, settings)
        loss, used = step([data[i] for i in ids], rate)
        losses.append(loss)
        tokens += used
        seconds += time.process_time() - began
        after_step(number + 1)
    return losses, tokens, seconds
