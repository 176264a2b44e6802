"""Our decoder against `transformers`' LlamaForCausalLM on the same effective weights."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from tests.trainer.oracle import TINY, make_pair, randomise_b, relative_error
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


@pytest.mark.parametrize("recompute", [True, False])
def test_recomputation_changes_no_gradient(tmp_path: Path, recompute: bool) -> None:
    pair = make_pair(tmp_path)
    adapter = LoraAdapter(pair.config, rank=3, alpha=6.0)
    randomise_b(adapter)
    hidden = pair.decoder.hidden(straight(IDS), adapter, recompute=recompute)
    pair.decoder.logits(hidden).square().mean().backward()
    gradients = {key: p.grad for key, p in adapter.named_parameters().items()}
    counts = pair.engine.report()["products"]["torch_cpu"]
    assert counts["recompute"] == (8 if recompute else 0)  # four products a layer
    assert counts["forward"] == 8 + 1
    # The lowest layer's qkv input is the embedding: nobody needs its gradient.
    assert counts["input_gradient"] == 8 + 1 - 1

    again = LoraAdapter(pair.config, rank=3, alpha=6.0)
    randomise_b(again)
    other = pair.decoder.hidden(straight(IDS), again, recompute=not recompute)
    pair.decoder.logits(other).square().mean().backward()
    for key, parameter in again.named_parameters().items():
        assert torch.equal(parameter.grad, gradients[key]), key


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
