"""Rows of the layers below an adapter: the same bits however they come, and the right gradients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from tests.trainer.oracle import TINY, Pair, make_pair, relative_error
from tests.trainer.test_decoder import IDS, straight
from tests.trainer.test_lora_gradients import (
    BATCH,
    FP16_TOLERANCE,
    FP32_TOLERANCE,
    assert_same_gradients,
    make_adapter,
    peft_gradients,
)
from trainer.dataset import TokenExample
from trainer.export.peft import load_peft_folder, write_peft_folder
from trainer.lora import LoraAdapter
from trainer.methods.first_order import Below, FirstOrder
from trainer.prefix_cache import PrefixCache
from trainer.prefix_files import PrefixFiles, prefix_name

DEEP = replace(TINY, num_hidden_layers=4)  # twice the layers that FP16_TOLERANCE is for
BELOW, TOP = 2, 2


def cache_in(pair: Pair, root: Path, limit_bytes: int = 1 << 20) -> PrefixCache:
    files = PrefixFiles(
        root, prefix_name("base", BELOW, {}), limit_bytes=limit_bytes, left_free_bytes=0
    )
    return PrefixCache(pair.decoder, BELOW, files)


def gradient(pair: Pair, adapter: LoraAdapter, tokens: int, below: Below | None) -> torch.Tensor:
    method = FirstOrder(
        pair.decoder, adapter, micro_batch_tokens=tokens, recompute=True, below=below
    )
    method.accumulate(BATCH)
    return adapter.gradient.clone()


@pytest.mark.parametrize(
    ("engine", "tolerance"), [("torch_cpu", FP32_TOLERANCE), ("onnx_cpu", 2 * FP16_TOLERANCE)]
)
@pytest.mark.parametrize("tokens", [512, 14])
def test_gradients_are_those_of_peft_and_the_same_bits_however_the_rows_come(
    tmp_path: Path, engine: str, tolerance: float, tokens: int
) -> None:
    pair = make_pair(tmp_path, DEEP, engine=engine)
    adapter = make_adapter(pair, layers=TOP)
    expected = peft_gradients(pair, adapter, tmp_path / "adapter")
    packed = gradient(pair, adapter, tokens, None)
    assert_same_gradients(adapter, expected, tolerance)
    root = tmp_path / "prefix"
    cold = cache_in(pair, root)
    computed = gradient(pair, adapter, tokens, cold.rows)
    assert_same_gradients(adapter, expected, tolerance)
    assert relative_error(computed, packed) < tolerance
    kept = gradient(pair, adapter, tokens, cold.rows)
    warm = cache_in(pair, root)
    read = gradient(pair, adapter, tokens, warm.rows)
    none = cache_in(pair, tmp_path / "other", limit_bytes=0)
    anew = gradient(pair, adapter, tokens, none.rows)
    room_for_two = cache_in(pair, tmp_path / "third", limit_bytes=2500)
    some = gradient(pair, adapter, tokens, room_for_two.rows)
    for other in (kept, read, anew, some):
        assert torch.equal(other, computed)
    counts = [
        (found["read"], found["computed"], found["examples"], found["without_room"])
        for found in (one.report() for one in (cold, warm, none, room_for_two))
    ]
    assert counts == [(4, 4, 4, 0), (4, 0, 4, 0), (0, 4, 0, 4), (0, 4, 2, 2)]


def test_the_rows_are_the_first_examples_then_each_ones_own(tmp_path: Path) -> None:
    """What another example makes of the shared start differs in its last bits on some machines."""
    pair = make_pair(tmp_path, DEEP)
    cache = cache_in(pair, tmp_path / "prefix")
    marked = [TokenExample(one.id, (*one.prompt, 99), one.answer, one.label) for one in BATCH]
    own = [alone(pair, one) for one in marked]
    found = cache.rows(marked, 4)
    expected = torch.cat([own[0][:4], *(rows[4:] for rows in own)])
    assert torch.equal(found, expected)
    assert len({tuple(rows[-1].tolist()) for rows in own}) == len(own)


def alone(pair: Pair, example: TokenExample) -> torch.Tensor:
    tokens: Sequence[int] = [*example.prompt, *example.answer[:-1]]
    return pair.decoder.below(straight(tokens), BELOW)


def test_what_a_fallback_helped_to_compute_is_not_kept(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, DEEP)
    cache = cache_in(pair, tmp_path / "prefix")
    below = pair.decoder.below

    def with_a_fallback(packed: object, layers: int) -> torch.Tensor:
        pair.engine.ledger.fallback("qnn", "a cause", None, None)
        return below(packed, layers)  # type: ignore[arg-type]

    pair.decoder.below = with_a_fallback  # type: ignore[method-assign,assignment]
    cache.rows(BATCH, 4)
    pair.decoder.below = below  # type: ignore[method-assign]
    assert cache.report()["examples"] == 0
    cache.rows(BATCH, 4)
    assert cache.report()["examples"] == 4
    pair.engine.ledger.give_up("a cause")
    other = cache_in(pair, tmp_path / "other")
    other.rows(BATCH, 4)
    assert other.report()["examples"] == 0


def test_an_exported_folder_of_top_layers_gives_peft_the_same_logits(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, DEEP)
    adapter = make_adapter(pair, layers=1, use_rslora=True)
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_peft_folder(folder, adapter, base_model="tiny", base_hash="sha256:0")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["layers_to_transform"] == [3]
    assert "layers 3 to 3" in (folder / "README.md").read_text()
    model = PeftModel.from_pretrained(pair.oracle, folder).double()
    adapted = {name for name, _ in model.named_parameters() if "lora_" in name}
    assert len(adapted) == 14
    assert all(".layers.3." in name for name in adapted)
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits[0]
        with model.disable_adapter():
            bare = model(torch.tensor([IDS])).logits[0]
    ours = pair.decoder.logits(pair.decoder.hidden(straight(IDS), adapter))
    assert relative_error(bare, expected) > 0.02, "the adapter must matter for this to prove it"
    assert relative_error(ours, expected) < 5e-6
    again = LoraAdapter(DEEP, rank=4, alpha=8.0, use_rslora=True, seed=9, layers=1)
    load_peft_folder(folder, again)
    assert torch.equal(again.flat, adapter.flat)
    with pytest.raises(ValueError, match=r"layers\.\d"):
        load_peft_folder(folder, LoraAdapter(DEEP, rank=4, alpha=8.0, layers=2))
