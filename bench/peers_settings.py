"""The settings of the race: which examples, which layers, who takes part, how many steps.

    realistic           personal examples: a shared instruction of 48 tokens, a text of its own and
                        1 to 5 label tokens, 72 tokens on average, in random order, 8 a step
    realistic_sorted    the same examples, those of like length in one batch (for peers that pad)
    short_4x64          4 x 64 tokens, the last 4 of each labelled
    full_4x256          4 x 256 tokens, all labelled but the first
    …_formats           the same for our weights in other formats and with everything saved
    …_700_mb            the same within 700 MB
    …_others            the same for litgpt and torchtune; of full_4x256 one race each, and one for
                        PEFT at its best, since all of them at once may not fit into memory
    …_top               the same with adapters in the top 8 layers only
    qwen_1x256          1 x 256 tokens, all labelled, on a random model of Qwen2.5-0.5B's shape

The length of a text of one's own is lognormal with the spread of real short messages: 0.77, the
standard deviation of the logarithm of the token counts of the public SMS Spam Collection in
SmolLM2's tokens (their mean is 25). Token ids are random, small ones more frequent: the work
doesn't depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.peers_task import Batch, Example

SHARED, OWN_MEAN, SPREAD = 48, 24, 0.77
LABELS = (1, 5)
BATCH_SIZE = 8
DISTINCT, DISTINCT_TOP = 6, 3
"""Realistic batches before they come again: a loss that falls until then shows training."""

TOP = 8
"""Layers with an adapter in the settings called `_top`."""

FEW_STEPS, FEWEST_STEPS = 3, 2
"""Of the races on which no goal depends; the fewest where steps are long."""

BaseName = Literal["smollm2", "qwen"]


@dataclass(frozen=True)
class Setting:
    """One race."""

    name: str
    batches: tuple[Batch, ...]
    """One per step."""
    contestants: tuple[str, ...]
    """The others are compared with the first."""
    layers: int | None = None
    """How many layers, from the top, have an adapter; None: all."""
    warm_up: int = 1
    """Steps that don't count; where ours keeps what it computed, until it has seen every batch."""
    base: BaseName = "smollm2"

    @property
    def ours(self) -> str:
        """The contestant that the others are compared with."""
        return self.contestants[0]

    @property
    def tokens(self) -> list[int]:
        """Tokens of each example, without padding, a shared start counted every time."""
        return [len(example.ids) for batch in self.batches for example in batch]


def settings(vocabulary: int, steps: int, full_steps: int, top: int) -> list[Setting]:
    """Every setting.

    Args:
        vocabulary: ids are below this.
        steps: of each setting, those that warm up included.
        full_steps: of `full_4x256` and, at most, `qwen_1x256`, whose steps are the longest.
        top: layers with an adapter where not all have one.
    """
    realistic = realistic_batches(vocabulary, DISTINCT)
    top_realistic = realistic[:DISTINCT_TOP]
    short = uniform_batches(vocabulary, 2, 4, 64, labels=4)
    full = uniform_batches(vocabulary, 2, 4, 256, labels=255)
    long = uniform_batches(vocabulary, 1, 1, 256, labels=255)
    formats = ("ours", "ours_int8", "ours_fp16", "ours_saving_all")
    others = ("ours", "litgpt", "torchtune")
    few_short, few_full = min(steps, FEW_STEPS), min(full_steps, FEWEST_STEPS)
    all_layers = [
        Setting("realistic", _repeated(realistic, steps), ("ours", "peft_as_used")),
        Setting(
            "realistic_sorted", _repeated(sorted_batches(realistic), steps), ("ours", "peft_best")
        ),
        Setting("realistic_formats", _repeated(realistic, few_short), formats),
        Setting("realistic_others", _repeated(realistic, few_short), others),
        Setting("short_4x64", _repeated(short, steps), ("ours", "peft", "peft_best")),
        Setting("short_4x64_formats", _repeated(short, few_short), formats),
        Setting("short_4x64_others", _repeated(short, few_short), others),
        Setting("full_4x256", _repeated(full, full_steps), ("ours", "peft", "peft_checkpointing")),
        Setting("full_4x256_formats", _repeated(full, few_full), formats),
        Setting("full_4x256_700_mb", _repeated(full, full_steps), ("ours_700_mb", "peft")),
        *(
            Setting(f"full_4x256_{name}", _repeated(full, few_full), ("ours", name))
            for name in ("peft_best", "litgpt", "torchtune")
        ),
        Setting("qwen_1x256", _repeated(long, min(full_steps, 3)), ("ours", "peft"), base="qwen"),
    ]
    top_layers = [
        Setting(
            f"{name}_top",
            _repeated(batches, steps),
            ("ours_cached", "ours", *peers),
            layers=top,
            warm_up=min(len(batches), steps - 1),
        )
        for name, batches, peers in (
            ("realistic", top_realistic, ("peft_as_used",)),
            ("realistic_sorted", sorted_batches(top_realistic), ("peft_best",)),
            ("short_4x64", short, ("peft", "peft_best")),
        )
    ]
    return all_layers + top_layers


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
    distinct = max(1, min(len(batches), steps - 1))
    return tuple(batches[step % distinct] for step in range(steps))


def _ids(random: np.random.Generator, vocabulary: int, count: int) -> tuple[int, ...]:
    """Skewed towards small ids; 0, which pads, is never one."""
    return tuple(((random.random(count) ** 3 * (vocabulary - 1)).astype(int) + 1).tolist())
