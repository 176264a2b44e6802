"""Packing for the loss: nothing lost, nothing computed twice, nothing over the limit."""

from pathlib import Path

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.oracle import make_pair, randomise_b, relative_error
from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.loss import answer_loss, pack_for_loss
from trainer.micro_batches import micro_batches
from trainer.packing import SegmentTree, common_prefix

tokens = st.integers(0, 5)  # few, so that prefixes are shared by chance too
examples = st.lists(
    st.tuples(st.lists(tokens, min_size=1, max_size=8), st.lists(tokens, min_size=1, max_size=3)),
    min_size=1,
    max_size=6,
).map(
    lambda rows: [
        TokenExample(i, tuple(prompt), (*answer, 9), "x") for i, (prompt, answer) in enumerate(rows)
    ]
)


@given(examples, st.integers(1, 40))
def test_micro_batches_keep_order_and_limit(batch: list[TokenExample], limit: int) -> None:
    parts = micro_batches(batch, limit)
    assert [example for _, part in parts for example in part] == batch
    for shared, part in parts:
        packed, _, _ = pack_for_loss(part, shared)
        assert len(packed.ids) <= limit or len(part) == 1


@given(examples)
def test_each_path_of_a_packed_batch_is_its_example(batch: list[TokenExample]) -> None:
    shared = common_prefix([example.prompt for example in batch])
    packed, rows, targets = pack_for_loss(batch, shared)
    expected = shared + sum(len(e.prompt) - shared + len(e.answer) - 1 for e in batch)
    assert len(packed.ids) == expected
    place = 0
    for example in batch:
        text = (*example.prompt, *example.answer)
        for offset, target in enumerate(example.answer):
            row = int(rows[place])
            context = packed.ids[packed.mask[row]].tolist()
            assert tuple(context) == text[: len(example.prompt) + offset]
            assert packed.positions[packed.mask[row]].tolist() == list(range(len(context)))
            assert int(targets[place]) == target
            place += 1
    assert place == len(rows) == len(targets)


@settings(max_examples=15, deadline=None)
@given(examples)
def test_the_packed_loss_is_the_sum_of_single_losses(batch: list[TokenExample]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        pair = make_pair(Path(folder))
        adapter = LoraAdapter(pair.config, rank=2, alpha=4.0)
        randomise_b(adapter)
        shared = common_prefix([example.prompt for example in batch])
        packed, _ = answer_loss(pair.decoder, adapter, batch, shared, recompute=False)
        single = torch.zeros(())
        for example in batch:
            tree = SegmentTree()
            tree.add((*example.prompt, *example.answer[:-1]))
            hidden = pair.decoder.hidden(tree.pack(), adapter)[len(example.prompt) - 1 :]
            logits = pair.decoder.logits(hidden)
            single += F.cross_entropy(logits, torch.tensor(example.answer), reduction="sum")
        assert relative_error(torch.tensor(packed), single) < 1e-5
