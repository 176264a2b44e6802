"""The settings of the race: which examples, which layers, who takes part, how many steps.

    realistic           personal examples: a shared instruction of 48 tokens, a text of its own and
                        1 to 5 label tokens, 72 tokens on average, in random order, 8 a step
    realistic_sorted    the same examples, those of like length in one batch (for peers that pad)
    short_4x64          4 x 64 tokens, the last 4 of each labelled
    full_4x256          4 x 256 tokens, all labelled but the first
    …_top8              adapters in the top 8 layers only

The length of a text of one's own is lognormal with the spread of real short messages: 0.77, the
standard deviation of the logarithm of the token counts of the public SMS Spam Collection in
SmolLM2's tokens (their mean is 25). Token ids are random, small ones more frequent: the work
doesn't depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.peers_task import Batch, Example

SHARED, OWN_MEAN, SPREAD = 48, 24, 0.77
LABELS = (1, 5)
BATCH_SIZE = 8
DISTINCT = {"realistic": 6, "short_4x64": 2, "full_4x256": 2}
"""Batches before they come again: a loss that falls from one time to the next shows training."""

TOP = 8


@dataclass(frozen=True)
class Setting:
    """One race."""

    name: str
    batches: tuple[Batch, ...]
    """One per step, the first of which only warms up."""
    layers: int | None
    contestants: tuple[str, ...]
    """Who takes every step."""
    extras: tuple[str, ...]
    """Who takes only the first `extra_steps`: they cost time, and no goal depends on them."""
    extra_steps: int = 3

    @property
    def tokens(self) -> list[int]:
        """Tokens of each distinct example, without padding, a shared start counted every time."""
        return [len(example.ids) for batch in self.batches for example in batch]


def settings(vocabulary: int, steps: int, full_steps: int) -> dict[str, Setting]:
    """Every setting by name, on the given base.

    Args:
        vocabulary: ids are below this.
        steps: of each setting, the one that warms up included.
        full_steps: of `full_4x256`, whose steps are the longest.
    """
    realistic = realistic_batches(vocabulary, DISTINCT["realistic"])
    by_length = sorted_batches(realistic)
    short = uniform_batches(vocabulary, DISTINCT["short_4x64"], 4, 64, labels=4)
    full = uniform_batches(vocabulary, DISTINCT["full_4x256"], 4, 256, labels=255)
    others = ("litgpt", "torchtune")
    found = [
        Setting(
            "realistic",
            _repeated(realistic, steps),
            None,
            ("ours", "peft_as_used"),
            ("ours_int8", "ours_fp16", "ours_saving_all", *others),
        ),
        Setting("realistic_sorted", _repeated(by_length, steps), None, ("ours", "peft_best"), ()),
        Setting(
            "short_4x64",
            _repeated(short, steps),
            None,
            ("ours", "peft", "peft_best"),
            ("ours_int8", "ours_fp16", "ours_saving_all", *others),
        ),
        Setting(
            "full_4x256",
            _repeated(full, full_steps),
            None,
            ("ours", "peft", "peft_checkpointing"),
            ("peft_best", "ours_int8", "ours_fp16", "ours_saving_all", *others),
        ),
    ]
    return {setting.name: setting for setting in found}


def realistic_batches(vocabulary: int, count: int) -> list[Batch]:
    """`count` batches of personal examples, in random order."""
    random = np.random.default_rng(0)
    shared = _ids(random, vocabulary, SHARED)
    mean_of_log = np.log(OWN_MEAN) - SPREAD**2 / 2
    batches = []
    for _ in range(count):
        batch = []
        for _ in range(BATCH_SIZE):
            labels = int(random.integers(LABELS[0], LABELS[1] + 1))
            own = max(labels + 1, round(random.lognormal(mean_of_log, SPREAD)))
            text, answer = (_ids(random, vocabulary, n) for n in (own - labels, labels))
            batch.append(Example((*shared, *text), answer))
        batches.append(tuple(batch))
    return batches


def sorted_batches(batches: Sequence[Batch]) -> list[Batch]:
    """The same examples with those of like length together; the batches in random order."""
    examples = sorted((e for batch in batches for e in batch), key=lambda e: len(e.ids))
    found = [
        tuple(examples[start : start + BATCH_SIZE]) for start in range(0, len(examples), BATCH_SIZE)
    ]
    return [found[index] for index in np.random.default_rng(1).permutation(len(found))]


def uniform_batches(
    vocabulary: int, count: int, batch: int, length: int, *, labels: int
) -> list[Batch]:
    """`batch` examples of `length` tokens with nothing in common, the last `labels` labelled."""
    random = np.random.default_rng(2)
    prompt = length - labels
    rows = [[_ids(random, vocabulary, length) for _ in range(batch)] for _ in range(count)]
    return [tuple(Example(row[:prompt], row[prompt:]) for row in of_batch) for of_batch in rows]


def padding_factor(batches: Sequence[Batch]) -> float:
    """Tokens that go through a model which pads to the longest of a batch, over real tokens."""
    lengths = [[len(example.ids) for example in batch] for batch in batches]
    return sum(max(of_batch) * len(of_batch) for of_batch in lengths) / sum(map(sum, lengths))


def _repeated(batches: Sequence[Batch], steps: int) -> tuple[Batch, ...]:
    """One batch a step; the first comes again even if there are few steps."""
    distinct = min(len(batches), steps - 1)
    return tuple(batches[step % distinct] for step in range(steps))


def _ids(random: np.random.Generator, vocabulary: int, count: int) -> tuple[int, ...]:
    """Skewed towards small ids; 0, which pads, is never one."""
    return tuple(((random.random(count) ** 3 * (vocabulary - 1)).astype(int) + 1).tolist())
