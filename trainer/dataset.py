"""A run's examples as tokens, and the order in which its steps see them.

The order is a pure function of (seed, epoch, example id): ids sorted by a hash. It doesn't depend
on any random generator's version, and an example deleted in the middle of a run leaves the place of
all the others as it was.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from storage.adapters import data_key
from storage.database import Database
from storage.examples import ExampleText, load_texts
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer


@dataclass(frozen=True)
class TokenExample:
    """One labelled example as the model sees it."""

    id: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """Label tokens, then the end token; only these carry loss."""
    label: str


@dataclass
class Dataset:
    """What a run trains and is measured on."""

    train: dict[int, TokenExample]
    holdout: dict[int, TokenExample]
    skipped: list[int]
    """Ids of the run's list that no longer exist: deleted since the run began."""
    cut: dict[int, int] = field(default_factory=dict)
    """Input tokens dropped, by example id."""
    digests: dict[int, str] = field(default_factory=dict)
    """Keyed digest of each example's text, by id: tells a changed example without storing text."""


def load_dataset(database: Database, spec: RunSpec, tokenizer: ChatTokenizer) -> Dataset:
    """Read the run's examples; the database is only read, in one snapshot."""
    wanted = [*spec.train_example_ids, *spec.holdout_example_ids]
    with database.read() as session:
        texts = {text.id: text for text in load_texts(session, wanted)}
        key = data_key(session, spec.adapter_id)
    dataset = Dataset({}, {}, skipped=[i for i in wanted if i not in texts])
    for side, ids in (
        (dataset.train, spec.train_example_ids),
        (dataset.holdout, spec.holdout_example_ids),
    ):
        for example_id in ids:
            if example_id not in texts:
                continue
            text = texts[example_id]
            encoded, cut = tokenizer.cut(text.input, text.label, spec.max_tokens)
            side[example_id] = TokenExample(
                example_id, tuple(encoded.prompt), tuple(encoded.answer), text.label
            )
            dataset.digests[example_id] = _digest(key, text)
            if cut:
                dataset.cut[example_id] = cut
    return dataset


def batch_ids(ids: Sequence[int], seed: int, batch_size: int, step: int) -> list[int]:
    """The example ids of one optimizer step (counted from 0).

    Steps walk through the shuffled epochs without a gap: a batch may end one epoch and begin the
    next, and no example is dropped at an epoch's end.
    """
    size = min(batch_size, len(ids))
    first = step * size
    orders: dict[int, list[int]] = {}
    chosen = []
    for index in range(first, first + size):
        epoch, place = divmod(index, len(ids))
        if epoch not in orders:
            orders[epoch] = epoch_order(ids, seed, epoch)
        chosen.append(orders[epoch][place])
    return chosen


def epoch_order(ids: Sequence[int], seed: int, epoch: int) -> list[int]:
    """All ids in the order of one epoch."""
    return sorted(ids, key=lambda i: hashlib.sha256(f"{seed}:{epoch}:{i}".encode()).digest())


def _digest(key: bytes, text: ExampleText) -> str:
    content = f"{len(text.input)}:{text.input}{text.label}".encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:32]
