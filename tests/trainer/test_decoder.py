"""Our decoder against `transformers`' LlamaForCausalLM on the same effective weights."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from tests.trainer.oracle import TINY, Pair, make_pair, randomise_b, relative_error
from trainer.lora import LoraAdapter
from trainer.packing import Packed, SegmentTree
from trainer.weight_plan import FormatChoice

IDS = [5, 17, 99, 3, 3, 64, 120, 8, 41, 77, 130, 2]


def straight(ids: list[int]) -> Packed:
    tree = SegmentTree()
    tree.add(ids)
    return tree.pack()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("weight_format", get_args(FormatChoice))
def test_logits_equal_transformers(tmp_path: Path, tied: bool, weight_format: FormatChoice) -> None:
    config = replace(TINY, tie_word_embeddings=tied)
    pair = make_pair(tmp_path, config, weight_format=weight_format)
    with torch.no_grad():
        ours = pair.decoder.logits(pair.decoder.hidden(straight(IDS)))
        expected = pair.oracle(torch.tensor([IDS])).logits[0]
    # Ours is fp32 against float64: a few hundred fp32 roundings (6e-8) through two layers.
    assert relative_error(ours, expected) < 2e-6


def gradients(
    pair: Pair, adapter: LoraAdapter, rows: list[int], *, recompute: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The adapter's gradient and the logits, for a loss that is half the logits' squares."""
    adapter.gradient.zero_()
    done = pair.decoder.forward(straight(IDS), adapter, torch.tensor(rows), recompute=recompute)
    logits = pair.decoder.logits(done.hidden)
    pair.decoder.backward(done, pair.decoder.logits_gradient(logits), adapter)
    return adapter.gradient.clone(), logits


@pytest.mark.parametrize("recompute", [True, False])
def test_recomputation_changes_no_gradient(tmp_path: Path, recompute: bool) -> None:
    pair = make_pair(tmp_path)
    adapter = LoraAdapter(pair.config, rank=3, alpha=6.0)
    randomise_b(adapter)
    rows = list(range(len(IDS)))
    found, _ = gradients(pair, adapter, rows, recompute=recompute)
    counts = pair.engine.report()["products"]["torch_cpu"]
    # Four products a layer, of which the last one's outputs aren't needed again.
    assert counts["recompute"] == (6 if recompute else 0)
    assert counts["forward"] == 8 + 1
    # The lowest layer's qkv input is the embedding: nobody needs its gradient.
    assert counts["input_gradient"] == 8 + 1 - 1
    other, _ = gradients(pair, adapter, rows, recompute=not recompute)
    assert torch.equal(other, found)


@pytest.mark.parametrize("rows", [[11], [0, 3, 4, 10], [5, 2]])
def test_a_trimmed_last_layer_gives_what_the_whole_one_gives(
    tmp_path: Path, rows: list[int]
) -> None:
    pair = make_pair(tmp_path)
    adapter = LoraAdapter(pair.config, rank=3, alpha=6.0)
    randomise_b(adapter)
    found, logits = gradients(pair, adapter, rows, recompute=False)
    hidden = pair.decoder.hidden(straight(IDS), adapter)
    assert relative_error(logits, pair.decoder.logits(hidden)[rows]) < 2e-6
    trimmed = pair.decoder.hidden(straight(IDS), adapter, rows=torch.tensor(rows))
    assert relative_error(trimmed, hidden[rows]) < 2e-6

    adapter.gradient.zero_()
    whole = pair.decoder.forward(straight(IDS), adapter, torch.arange(len(IDS)), recompute=False)
    d_logits = torch.zeros(len(IDS), pair.config.vocab_size)
    d_logits[rows] = logits
    pair.decoder.backward(whole, pair.decoder.logits_gradient(d_logits), adapter)
    assert found.any()
    assert relative_error(found, adapter.gradient) < 1e-5


@pytest.mark.parametrize("recompute", [True, False])
def test_the_layers_below_the_adapted_ones_may_be_given(tmp_path: Path, recompute: bool) -> None:
    pair = make_pair(tmp_path)
    adapter = LoraAdapter(pair.config, rank=3, alpha=6.0, layers=1)
    randomise_b(adapter)
    assert {key.split(".")[4] for key in adapter.named_parameters()} == {"1"}
    found, logits = gradients(pair, adapter, [4, 11], recompute=recompute)
    counts = pair.engine.report()["products"]["torch_cpu"]
    assert counts["input_gradient"] == 4 + 1 - 1
    below = pair.decoder.below(straight(IDS), 1)
    adapter.gradient.zero_()
    done = pair.decoder.forward(
        straight(IDS), adapter, torch.tensor([4, 11]), recompute=recompute, below=below
    )
    assert torch.equal(pair.decoder.logits(done.hidden), logits)
    pair.decoder.backward(done, pair.decoder.logits_gradient(logits), adapter)
    assert torch.equal(adapter.gradient, found)


def test_packed_branches_read_like_sequences_of_their_own(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    tree = SegmentTree()
    root = tree.add(IDS[:4])
    left = tree.add([11, 12, 13], root)
    right = tree.add([], root)
    leaf = tree.add([50, 51], right)
    deep = tree.add([90], left)
    with torch.no_grad():
        packed = pair.decoder.hidden(tree.pack())
        for segment, path in (
            (left, [*IDS[:4], 11, 12, 13]),
            (right, IDS[:4]),
            (leaf, [*IDS[:4], 50, 51]),
            (deep, [*IDS[:4], 11, 12, 13, 90]),
        ):
            alone = pair.decoder.hidden(straight(path))[-1]
            assert relative_error(packed[tree.last_row(segment)], alone) < 2e-6
