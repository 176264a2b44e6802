"""LoRA gradients of every family against the real `peft` on `transformers`' model, per tensor.

lora_B is random, since at zero every gradient of lora_A is zero. Ours come packed, with a prefix
that the prompts share computed once, and longer than one piece of attention (64 queries); the
expected ones are of one plain sequence at a time, in float64.
"""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel

from npu.engine_options import EngineOptions
from npu.opening import open_engine
from tests.trainer.families import FAMILIES, Member, make_member
from tests.trainer.float64_engine import Float64Engine
from tests.trainer.oracle import relative_error
from trainer.dataset import TokenExample
from trainer.export.peft import write_peft_folder
from trainer.lora import TARGETS, LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.decoder import Decoder

IDS = torch.randint(0, 288, (400,), generator=torch.Generator().manual_seed(3)).tolist()
SHARED = IDS[:21]
BATCH = [
    TokenExample(1, (*SHARED, *IDS[30:110]), (60, 2), "a"),
    TokenExample(2, (*SHARED, *IDS[120:131]), (61, 62, 63, 2), "b"),
    TokenExample(3, (*SHARED, *IDS[150:200]), (2,), ""),
    TokenExample(4, (*SHARED, *IDS[210:225]), (60, 2), "a"),
]
TARGET_SETS = {"all": TARGETS, "attention": TARGETS[:4], "one": ("k_proj",)}


@pytest.fixture(scope="module", params=FAMILIES)
def member(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Member:
    return make_member(tmp_path_factory.mktemp("family"), request.param)


def make_adapter(
    member: Member, dtype: torch.dtype, rank: int, use_rslora: bool, targets: tuple[str, ...]
) -> LoraAdapter:
    """An adapter of numbers that fp32 holds, whatever it computes in."""
    adapter = LoraAdapter(
        member.config,
        rank=rank,
        alpha=6.0,
        targets=targets,
        use_rslora=use_rslora,
        dtype=dtype,
    )
    adapter.randomise(torch.Generator().manual_seed(rank), 0.1)
    adapter.flat.copy_(adapter.flat.float())
    return adapter


def peft_gradients(
    member: Member, adapter: LoraAdapter, folder: Path
) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean token loss and its gradients, in float64."""
    folder.mkdir()
    write_peft_folder(folder, adapter, base_model="tiny", base_hash="sha256:0")
    model = PeftModel.from_pretrained(member.oracle, folder, is_trainable=True).double()
    count, total = sum(len(example.answer) for example in BATCH), 0.0
    for example in BATCH:
        ids = torch.tensor([[*example.prompt, *example.answer]])
        start = len(example.prompt)
        picked = model(ids).logits[0, start - 1 : start - 1 + len(example.answer)]
        loss = F.cross_entropy(picked, torch.tensor(example.answer), reduction="sum") / count
        loss.backward()
        total += loss.item()
    gradients = {
        name.replace(".default", ""): parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.unload()
    return total, gradients


@pytest.mark.parametrize("targets", TARGET_SETS)
@pytest.mark.parametrize("use_rslora", [False, True], ids=["lora", "rslora"])
@pytest.mark.parametrize("rank", [1, 8])
def test_gradients_equal_peft(
    member: Member, rank: int, use_rslora: bool, targets: str, tmp_path: Path
) -> None:
    settings = (rank, use_rslora, TARGET_SETS[targets])
    exported = make_adapter(member, torch.float32, *settings)
    expected_loss, expected = peft_gradients(member, exported, tmp_path / "adapter")
    engine = Float64Engine(member.weights.matrices, EngineOptions(threads=1))
    exact = Decoder(member.config, member.weights, engine, torch.float64)
    for decoder, dtype, tolerance in (
        (member.decoder(), torch.float32, 1e-5),
        (exact, torch.float64, 1e-10),
    ):
        adapter = make_adapter(member, dtype, *settings)
        # rsLoRA's runs compute each layer again, the others keep what it made
        method = FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=use_rslora)
        result = method.accumulate(BATCH)
        assert result.loss == pytest.approx(expected_loss, rel=tolerance)
        found = adapter.named_gradients()
        assert found.keys() == expected.keys()
        assert len(found) == 2 * len(TARGET_SETS[targets]) * member.config.num_hidden_layers
        for key, gradient in found.items():
            assert expected[key].norm() > 1e-6, f"{key}: a zero gradient proves nothing"
            error = relative_error(gradient, expected[key])
            assert error < tolerance, f"{key}, {dtype}: {error}"


def test_gradients_through_a_half_precision_engine(member: Member, tmp_path: Path) -> None:
    """Biases, head norms and rotations stay on the CPU in fp32; products have fp16 activations."""
    settings = (8, False, TARGETS)
    adapter = make_adapter(member, torch.float32, *settings)
    _, expected = peft_gradients(member, adapter, tmp_path / "adapter")
    engine = open_engine(member.weights, "onnx_cpu", EngineOptions(threads=1))
    decoder = Decoder(member.config, member.weights, engine)
    FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=False).accumulate(BATCH)
    for key, gradient in adapter.named_gradients().items():
        assert relative_error(gradient, expected[key]) < 1e-2, key
    report = engine.report()
    assert set(report["products"]) == {"onnx_cpu"}
    assert report["fallbacks"] == []
