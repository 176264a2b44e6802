"""A run's examples as tokens, and the order in which its steps see them.

The order is a pure function of (seed, epoch, example id): ids sorted by a hash. It doesn't depend
on any random generator's version, and an example deleted in the middle of a run leaves the place of
all the others as it was.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storage.database import Database
from storage.examples import ExampleText, load_texts
from storage.split import normalise
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer


class DatasetError(ValueError):
    """The run's examples can't be read or encoded; the message names one by its id only."""


@dataclass(frozen=True)
class TokenExample:
    """One labelled example as the model sees it."""

    id: int
    prompt: Sequence[int]
    answer: Sequence[int]
    """Label tokens, then the end token; only these carry loss."""
    label: str


@dataclass
class Dataset:
    """What a run trains and is measured on."""

    train: dict[int, TokenExample] = field(default_factory=dict)
    validation: dict[int, TokenExample] = field(default_factory=dict)
    """Of the training side, but not trained on: `trainer.validation`."""
    holdout: dict[int, TokenExample] = field(default_factory=dict)
    same_input: dict[int, int] = field(default_factory=dict)
    """The first training example whose normalised input is the same, by id."""
    cut: dict[int, int] = field(default_factory=dict)
    """Input tokens dropped, by example id."""
    changed_at: dict[int, int] = field(default_factory=dict)
    """When each example's text was last changed (ms since 1970 UTC), by id."""

    def ids(self) -> list[int]:
        """All that it holds."""
        return [*self.train, *self.validation, *self.holdout]

    def hold_back(self, ids: Iterable[int]) -> None:
        """Train on these no more, and validate with them instead."""
        for example_id in ids:
            if example_id in self.train:
                self.validation[example_id] = self.train.pop(example_id)

    def forget(self, ids: Iterable[int]) -> None:
        """Drop everything of these examples; the others keep their order."""
        parts = (self.train, self.validation, self.holdout, self.same_input, self.cut)
        for example_id in ids:
            for part in (*parts, self.changed_at):
                part.pop(example_id, None)


def load_dataset(database: Database, spec: RunSpec, tokenizer: ChatTokenizer) -> Dataset:
    """Read the run's examples, in one snapshot that is given back before the first is encoded.

    Left out are those that are gone, and those whose label was corrected to one that the run,
    which keeps the labels it was made with, doesn't know.

    Raises:
        DatasetError: if they can't be read, or one of them can't be encoded.
    """
    texts = read_texts(database, [*spec.train_example_ids, *spec.holdout_example_ids])
    dataset = Dataset()
    first: dict[str, int] = {}
    for text in _usable(texts, spec.train_example_ids, spec):
        dataset.same_input[text.id] = first.setdefault(normalise(text.input), text.id)
    for side, ids in (
        (dataset.train, spec.train_example_ids),
        (dataset.holdout, spec.holdout_example_ids),
    ):
        for text in _usable(texts, ids, spec):
            side[text.id], cut = _encode(text, spec, tokenizer)
            dataset.changed_at[text.id] = text.changed_at
            if cut:
                dataset.cut[text.id] = cut
    return dataset


def read_texts(database: Database, ids: Sequence[int]) -> dict[int, ExampleText]:
    """Those of the examples that are still there, by id, in one short transaction.

    Raises:
        DatasetError: if they can't be read.
    """
    try:
        with database.read() as session:
            return {text.id: text for text in load_texts(session, ids)}
    except Exception as error:  # sqlite3 quotes a text that isn't UTF-8
        raise DatasetError(
            f"expected to read the run's examples, found {type(error).__name__}; check lorad.db"
        ) from None


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


def _usable(
    texts: dict[int, ExampleText], ids: Sequence[int], spec: RunSpec
) -> Iterator[ExampleText]:
    for example_id in ids:
        text = texts.get(example_id)
        if text is not None and (spec.labels is None or text.label in spec.labels):
            yield text


def _encode(text: ExampleText, spec: RunSpec, tokenizer: ChatTokenizer) -> tuple[TokenExample, int]:
    """The example, and how many tokens of its input were cut."""
    try:
        encoded, cut = tokenizer.cut(text.input, text.label, spec.max_tokens)
    except Exception as error:  # tokenizer and template may quote what they were given
        raise DatasetError(
            f"expected example {text.id} to fit the model and its {spec.max_tokens} tokens, found"
            f" a {type(error).__name__}; correct it or delete it, then train again"
        ) from None
    example = TokenExample(
        text.id, array("i", encoded.prompt), array("i", encoded.answer), text.label
    )
    return example, cut
