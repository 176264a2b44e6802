"""LoRA gradients and the exported folder against the real `peft` on `transformers`' model.

Per tensor, lora_B random, every tensor's gradient non-zero: a zero gradient agrees with anything.
"""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel

from tests.trainer.oracle import Pair, make_pair, randomise_b, relative_error
from trainer.dataset import TokenExample
from trainer.export.peft import load_peft_folder, write_peft_folder
from trainer.lora import TARGETS, LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.weight_plan import FormatChoice

HEAD = (7, 8, 9, 10)
BATCH = [
    TokenExample(1, (*HEAD, 20, 21, 22, 23), (60, 2), "a"),
    TokenExample(2, (*HEAD, 30, 31), (61, 62, 2), "b"),
    TokenExample(3, (*HEAD, 40, 41, 42, 43, 44, 45), (60, 2), "a"),
    TokenExample(4, (*HEAD, 30, 31), (63, 2), "c"),
]

# Ours in fp32 with fp32 sums, expected in float64.
FP32_TOLERANCE = 1e-5
# fp16 activations into and out of each product: 2.9e-4 a product (measured on the emulator, all
# shapes), through 2 layers forward and back; 2.1e-3 was the worst tensor of a toy model measured.
FP16_TOLERANCE = 5e-3


def make_adapter(pair: Pair, **settings: object) -> LoraAdapter:
    options = {"rank": 4, "alpha": 8.0, "targets": TARGETS, "use_rslora": False, **settings}
    adapter = LoraAdapter(pair.config, **options)  # type: ignore[arg-type]
    randomise_b(adapter)
    return adapter


def peft_gradients(pair: Pair, adapter: LoraAdapter, folder: Path) -> dict[str, torch.Tensor]:
    """Gradients of the mean token loss, one plain unpadded sequence at a time, in float64."""
    folder.mkdir()
    write_peft_folder(folder, adapter, base_model="tiny", base_hash="sha256:0")
    model = PeftModel.from_pretrained(pair.oracle, folder, is_trainable=True).double()
    count = sum(len(example.answer) for example in BATCH)
    for example in BATCH:
        ids = torch.tensor([[*example.prompt, *example.answer]])
        logits = model(ids).logits[0]
        start = len(example.prompt)
        picked = logits[start - 1 : start - 1 + len(example.answer)]
        loss = F.cross_entropy(picked, torch.tensor(example.answer), reduction="sum") / count
        loss.backward()
    gradients = {
        name.replace(".default", ""): parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.unload()
    return gradients


def assert_same_gradients(
    adapter: LoraAdapter, expected: dict[str, torch.Tensor], tolerance: float
) -> None:
    ours = adapter.named_gradients()
    assert ours.keys() == expected.keys()
    for key, gradient in ours.items():
        assert expected[key].abs().max() > 1e-7, f"{key}: a zero gradient proves nothing"
        assert relative_error(gradient, expected[key]) < tolerance, key


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rank": 1, "targets": ("q_proj", "v_proj")},
        {"use_rslora": True},
        {"targets": ("down_proj",)},
    ],
    ids=["all", "rank 1 attention", "rslora", "one target"],
)
@pytest.mark.parametrize("micro_batch_tokens", [512, 14])
@pytest.mark.parametrize("recompute", [True, False])
def test_gradients_equal_peft(
    tmp_path: Path, settings: dict[str, object], micro_batch_tokens: int, recompute: bool
) -> None:
    pair = make_pair(tmp_path)
    adapter = make_adapter(pair, **settings)
    expected = peft_gradients(pair, adapter, tmp_path / "adapter")
    method = FirstOrder(
        pair.decoder, adapter, micro_batch_tokens=micro_batch_tokens, recompute=recompute
    )
    method.accumulate(BATCH)
    assert_same_gradients(adapter, expected, FP32_TOLERANCE)


@pytest.mark.parametrize("weight_format", ["int4", "int4_min"])
def test_gradients_on_4_bit_weights_equal_peft(tmp_path: Path, weight_format: FormatChoice) -> None:
    """torch_cpu has exactly the effective weights, so there is nothing but fp32 in between."""
    pair = make_pair(tmp_path, weight_format=weight_format)
    formats = {matrix.format for matrix in pair.weights.matrices.values()}
    assert formats == {weight_format, "int8"}
    adapter = make_adapter(pair)
    expected = peft_gradients(pair, adapter, tmp_path / "adapter")
    FirstOrder(pair.decoder, adapter, micro_batch_tokens=512, recompute=True).accumulate(BATCH)
    assert_same_gradients(adapter, expected, FP32_TOLERANCE)


@pytest.mark.parametrize("weight_format", ["int8", "fp16", "int4", "int4_min"])
@pytest.mark.parametrize("engine", ["onnx_cpu", pytest.param("qnn", marks=pytest.mark.emulator)])
def test_gradients_through_half_precision_engines(
    tmp_path: Path, engine: str, weight_format: FormatChoice
) -> None:
    pair = make_pair(tmp_path, engine=engine, weight_format=weight_format)
    adapter = make_adapter(pair)
    expected = peft_gradients(pair, adapter, tmp_path / "adapter")
    FirstOrder(pair.decoder, adapter, micro_batch_tokens=512, recompute=True).accumulate(BATCH)
    assert_same_gradients(adapter, expected, FP16_TOLERANCE)
    report = pair.engine.report()
    assert set(report["products"]) == {engine}
    assert report["fallbacks"] == []


@pytest.mark.parametrize("use_rslora", [True, False])
def test_exported_folder_gives_peft_the_same_logits(tmp_path: Path, use_rslora: bool) -> None:
    pair = make_pair(tmp_path)
    adapter = make_adapter(pair, use_rslora=use_rslora)
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_peft_folder(folder, adapter, base_model="tiny", base_hash="sha256:0")
    model = PeftModel.from_pretrained(pair.oracle, folder).double()
    from tests.trainer.test_decoder import IDS, straight

    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits[0]
        with model.disable_adapter():
            bare = model(torch.tensor([IDS])).logits[0]
        ours = pair.decoder.logits(pair.decoder.hidden(straight(IDS), adapter))
    assert relative_error(bare, expected) > 0.05, "the adapter must matter for this to prove it"
    assert relative_error(ours, expected) < 5e-6

    again = LoraAdapter(
        pair.config, rank=adapter.rank, alpha=adapter.alpha, use_rslora=use_rslora, seed=9
    )
    load_peft_folder(folder, again)
    for key, value in again.to_arrays().items():
        assert (value == adapter.to_arrays()[key]).all(), key
