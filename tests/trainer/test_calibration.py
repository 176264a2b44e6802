"""What a format costs the gradients, against `transformers` and `peft` on the effective weights."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel

from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.quantize import Quantized, quantize
from npu.weights import WeightFormat
from tests.trainer.oracle import oracle_of
from trainer.calibration.calibration import (
    BOTH,
    Calibration,
    random_adapter,
)
from trainer.calibration.options import CalibrationError, CalibrationSettings
from trainer.calibration.texts import CalibrationTexts, read_texts
from trainer.export.peft import write_peft_folder
from trainer.models.base_model import BaseModel
from trainer.models.huggingface import read_huggingface_model
from trainer.models.tiny import write_tiny_model
from trainer.tokens import ChatTokenizer

SETTINGS = CalibrationSettings(rank=4, alpha=8.0, seed=3, threads=1)
ROWS = [
    {"input": "milk", "label": "hide"},
    {"input": "call home", "label": "now"},
    {"input": "held out", "label": "now", "split": "holdout"},
    {"input": "lice in 6B", "label": "now"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    write_tiny_model(folder / "tied")
    write_tiny_model(folder / "untied", tied=False, layers=1)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> BaseModel:
    return read_huggingface_model(folder / "tied")


def tokenizer_of(model: BaseModel) -> ChatTokenizer:
    return ChatTokenizer(model.tokenizer.to_str(), model.chat_template, model.special_tokens)


@pytest.fixture(scope="module")
def texts(folder: Path, model: BaseModel) -> CalibrationTexts:
    return read_texts(folder / "rows.jsonl", tokenizer_of(model), tokens=200)


@pytest.fixture(scope="module")
def calibration(folder: Path, model: BaseModel, texts: CalibrationTexts):  # type: ignore[no-untyped-def]
    with Calibration.prepare(model, texts, folder, SETTINGS) as calibration:
        yield calibration


def in_format(model: BaseModel, name: str, format: WeightFormat) -> FrozenMatrix:
    source = next(source for source in model.matrices() if source.name == name)
    encoded = quantize(source.load(), format)
    return FrozenMatrix(name, format, encoded.codes, encoded.scale, encoded.offset)


def oracle_gradients(
    model: BaseModel,
    texts: CalibrationTexts,
    calibration: Calibration,
    swapped: dict[str, FrozenMatrix],
    directions: tuple[Direction, ...],
    folder: Path,
) -> dict[str, torch.Tensor]:
    """PEFT's gradients in float64, one plain sequence at a time.

    A linear with other weights in one direction is written as autograd's own: the value comes from
    one of the two, the gradient only passes through the other.
    """
    own = calibration.reference
    plain = oracle_of(model.config, own, torch.float64)  # type: ignore[arg-type]
    other = oracle_of(model.config, own.with_matrices(swapped), torch.float64)  # type: ignore[arg-type]
    forwards = dict((other if "forward" in directions else plain).named_modules())
    backwards = dict((other if "input_gradient" in directions else plain).named_modules())
    values = {
        name: m.weight.detach().clone() for name, m in forwards.items() if hasattr(m, "weight")
    }
    slopes = {
        name: m.weight.detach().clone() for name, m in backwards.items() if hasattr(m, "weight")
    }
    target = oracle_of(model.config, own, torch.float64)  # type: ignore[arg-type]
    with torch.no_grad():
        target.model.embed_tokens.weight.copy_(values["model.embed_tokens"])
    for name, module in target.named_modules():
        if isinstance(module, torch.nn.Linear):
            forward, backward = values[name], slopes[name]

            def product(
                x: torch.Tensor, forward: torch.Tensor = forward, backward: torch.Tensor = backward
            ) -> torch.Tensor:
                return x @ backward.T + (x.detach() @ (forward - backward).T)

            module.forward = product
    write_peft_folder(
        folder, random_adapter(model, SETTINGS), base_model="tiny", base_hash="sha256:0"
    )
    peft = PeftModel.from_pretrained(target, folder, is_trainable=True).double()
    for example in texts.examples:
        ids = torch.tensor([[*example.prompt, *example.answer]])
        logits = peft(ids).logits[0]
        start = len(example.prompt)
        picked = logits[start - 1 : start - 1 + len(example.answer)]
        loss = F.cross_entropy(picked, torch.tensor(example.answer), reduction="sum")
        loss.backward()
    return {
        name.replace(".default", ""): parameter.grad.clone()
        for name, parameter in peft.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("directions", [("forward",), ("input_gradient",), BOTH], ids="-".join)
@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("layers.1.self_attn.qkv_proj", "int4"),
        ("layers.0.mlp.down_proj", "int8"),
        ("layers.1.mlp.gate_up_proj", "int4_min"),
        ("embed_tokens", "int8"),
    ],
)
def test_equals_peft_on_the_effective_weights(
    tmp_path: Path,
    model: BaseModel,
    texts: CalibrationTexts,
    calibration: Calibration,
    name: str,
    format: WeightFormat,
    directions: tuple[Direction, ...],
) -> None:
    swapped = {name: in_format(model, name, format)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    arguments = (model, texts, calibration)
    expected = oracle_gradients(*arguments, {}, BOTH, tmp_path / "a")
    moved = oracle_gradients(*arguments, swapped, directions, tmp_path / "b")
    assert len(expected) == 2 * 7 * 2
    before = torch.cat([expected[key].flatten() for key in sorted(expected)])
    after = torch.cat([moved[key].flatten() for key in sorted(expected)])
    each = {
        key: float((moved[key] - expected[key]).norm() / expected[key].norm()) for key in expected
    }
    worst = max(each, key=lambda key: each[key])

    found = calibration.change_of_matrix(name, format, directions)

    change = float((after - before).norm() / before.norm())
    assert change > 1e-4, "a change that is nothing agrees with anything"
    assert found.change == pytest.approx(change, rel=2e-3)
    assert 1 - found.cosine == pytest.approx(
        1 - float(F.cosine_similarity(after, before, dim=0)), rel=5e-3, abs=1e-9
    )
    assert (found.worst_tensor, found.worst_change) == (worst, pytest.approx(each[worst], rel=2e-3))


def test_taking_products_from_the_record_changes_no_bit(
    model: BaseModel, calibration: Calibration
) -> None:
    for name in ("layers.1.mlp.gate_up_proj", "layers.0.self_attn.o_proj"):
        swapped = {name: in_format(model, name, "int4")}
        for directions in (("forward",), ("input_gradient",), BOTH):
            reused = calibration.gradient(swapped, directions)
            anew = calibration.gradient(swapped, directions, reuse=False)
            assert (reused == anew).all(), (name, directions)
    assert calibration.change_of({}).change == 0.0


def test_the_table_has_every_matrix_and_candidate(
    model: BaseModel, calibration: Calibration
) -> None:
    calls: list[tuple[int, int]] = []
    table = calibration.measure(("int4", "int8"), lambda *call: calls.append(call))
    assert [m.name for m in table.matrices] == [source.name for source in model.matrices()]
    assert calls == [(number, 9) for number in range(10)]
    for matrix in table.matrices:
        assert [cost.format for cost in matrix.formats] == ["int4", "int8"]
        small, large = matrix.formats
        assert small.bytes < large.bytes
        assert small.forward.change > large.forward.change > 1e-5
        # Nothing below the first product can learn, so its input gradient is never computed.
        first = matrix.name == "layers.0.self_attn.qkv_proj"
        assert (small.input_gradient is None) == first
        assert first or small.input_gradient.change > large.input_gradient.change > 1e-5  # type: ignore[union-attr]
    again = calibration.measure(("int4", "int8"))
    assert again == table


def test_a_mix_is_measured_as_it_would_be_written(
    folder: Path, model: BaseModel, calibration: Calibration
) -> None:
    formats: dict[str, WeightFormat] = {source.name: "int8" for source in model.matrices()}
    formats["layers.0.mlp.down_proj"] = "int4"
    swapped = {name: in_format(model, name, format) for name, format in formats.items()}
    assert calibration.change_of_mix(formats) == calibration.change_of(swapped)
    one = calibration.change_of_mix({"layers.0.mlp.down_proj": "int4"})
    assert one == calibration.change_of_matrix("layers.0.mlp.down_proj", "int4")
    assert {path.name for path in folder.iterdir()} == {"tied", "untied", "rows.jsonl"}


def test_squares_of_single_changes_add_up_to_about_that_of_the_mix(
    calibration: Calibration,
) -> None:
    table = calibration.measure(("int8",))
    estimate = np.sqrt(sum(c[0].change ** 2 for c in table.candidates().values()))
    measured = calibration.change_of_mix({m.name: "int8" for m in table.matrices}).change
    assert measured == pytest.approx(estimate, rel=0.5)


def test_a_native_format_keeps_its_values(
    folder: Path, model: BaseModel, texts: CalibrationTexts
) -> None:
    """The source's own blocks are the candidate, not a second quantisation of their values."""
    part = "layers.0.mlp.down_proj"

    def load_native(name: str) -> Quantized:
        zeros = quantize(np.zeros_like(model.load(name)), "int4")
        assert name == part
        return zeros

    native = replace(model, native={part: "int4"}, load_native=load_native)
    with Calibration.prepare(native, texts, folder, SETTINGS) as calibration:
        zeros = calibration.change_of_matrix(part, "int4")
        requantised = calibration.change_of_matrix(part, "int4_min")
        costs = next(m for m in calibration.measure(("int4",)).matrices if m.name == part)
    assert costs.native == "int4"
    assert zeros.change > 3 * requantised.change


def test_an_untied_embedding_has_a_forward_direction_only(
    folder: Path, texts: CalibrationTexts
) -> None:
    model = read_huggingface_model(folder / "untied")
    with Calibration.prepare(model, texts, folder, SETTINGS) as calibration:
        table = calibration.measure(("int8",))
    costs = {matrix.name: matrix.formats[0] for matrix in table.matrices}
    assert costs["embed_tokens"].input_gradient is None
    assert costs["embed_tokens"].forward.change > 1e-5
    assert costs["lm_head"].input_gradient is not None


def test_values_that_a_format_cannot_hold_are_no_candidate(
    folder: Path, model: BaseModel, texts: CalibrationTexts
) -> None:
    large = "layers.1.self_attn.o_proj"

    def load(name: str) -> np.ndarray:
        values = model.load(name).copy()
        if name == large:
            values[0, 0] = 1e5
        return values

    with Calibration.prepare(replace(model, load=load), texts, folder, SETTINGS) as calibration:
        table = calibration.measure()
    costs = next(matrix for matrix in table.matrices if matrix.name == large)
    assert [cost.format for cost in costs.formats] == ["int8"]
    assert "65504" in costs.refused["fp16"]


def test_texts_are_chosen_by_seed_and_never_held_out(folder: Path, model: BaseModel) -> None:
    tokenizer = tokenizer_of(model)
    chosen = read_texts(folder / "rows.jsonl", tokenizer, tokens=200)
    assert sorted(example.id for example in chosen.examples) == [1, 2, 4]
    assert chosen.tokens <= 200
    assert chosen == read_texts(folder / "rows.jsonl", tokenizer, tokens=200)
    orders = {
        tuple(e.id for e in read_texts(folder / "rows.jsonl", tokenizer, seed=seed).examples)
        for seed in range(8)
    }
    assert len(orders) > 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found none"),
        ('{"input": "a", "label": "b", "split": "holdout"}', "found none"),
        ('{"input": "a", "label": "b"}\nnonsense', "line 2"),
        ('{"input": "a"}', "line 1"),
        ('{"input": "a", "label": ""}', "line 1"),
        ('{"input": 1, "label": "b"}', "line 1"),
        ('["input"]', "line 1"),
    ],
)
def test_a_file_that_holds_no_texts_is_refused(
    tmp_path: Path, model: BaseModel, content: str, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(CalibrationError, match=message):
        read_texts(path, tokenizer_of(model))
