"""The frozen product beside the adapter's: exact, counted, and the same bits in either order."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.errors import NonFiniteInput
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction, Product
from npu.opening import open_engine
from npu.pending_product import PendingProduct, at_once
from npu.weights import FrozenWeights
from tests.trainer.oracle import TINY, randomise_b, write_tiny_weights
from trainer import adapted_linear
from trainer.adapted_linear import adapted_backward, adapted_forward
from trainer.dataset import TokenExample
from trainer.lora import LinearLora, LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.models.decoder import Decoder
from trainer.optimizer import Optimizer
from trainer.spec import TrainingSettings

ENGINES = ["torch_cpu", "onnx_cpu", pytest.param("qnn", marks=pytest.mark.emulator)]
BATCH = [
    TokenExample(1, (7, 8, 9, 10, 20, 21, 22, 23), (60, 2), "a"),
    TokenExample(2, (7, 8, 9, 10, 30, 31), (61, 62, 2), "b"),
]


class Float64Engine:
    """One matrix in float64, so that what remains is the error of our own formulas."""

    def __init__(self, W: torch.Tensor, own_thread: bool) -> None:
        self.W, self.own_thread = W, own_thread
        self.begun: list[Product] = []

    def begin(self, product: Product, matrix: str, a: torch.Tensor) -> PendingProduct:
        self.begun.append(product)
        return at_once(lambda: a @ (self.W if product == "input_gradient" else self.W.t()))


M, K = 11, 13
WIDTHS, RANK = (5, 3, 7), 2


def random_lora(adapted: tuple[int, ...], generator: torch.Generator) -> LinearLora:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    starts = [sum(WIDTHS[:i]) for i in range(len(WIDTHS))]
    A, B = draw(RANK * len(adapted), K), tuple(draw(WIDTHS[i], RANK) for i in adapted)
    return LinearLora(
        A,
        draw(*A.shape),
        B,
        tuple(draw(*one.shape) for one in B),
        tuple(slice(starts[i], starts[i] + WIDTHS[i]) for i in adapted),
        scale=1.75,
    )


@pytest.mark.parametrize("own_thread", [True, False])
@pytest.mark.parametrize("adapted", [(0, 1, 2), (0, 2), (1,)], ids=["all", "two", "one"])
@pytest.mark.parametrize("needs_dx", [True, False])
def test_formulas_in_float64_are_autograds(
    adapted: tuple[int, ...], needs_dx: bool, own_thread: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    lora = random_lora(adapted, generator)
    before = [lora.A_gradient.clone(), *(dB.clone() for dB in lora.B_gradients)]
    W = torch.randn(sum(WIDTHS), K, generator=generator, dtype=torch.float64)
    x = torch.randn(M, K, generator=generator, dtype=torch.float64).requires_grad_()
    dy = torch.randn(M, sum(WIDTHS), generator=generator, dtype=torch.float64)
    A, B = lora.A.clone().requires_grad_(), [one.clone().requires_grad_() for one in lora.B]
    deltas = torch.zeros(M, sum(WIDTHS), dtype=torch.float64)
    for own, its, columns in zip(A.chunk(len(B)), B, lora.columns, strict=True):
        deltas = deltas + torch.nn.functional.pad(
            lora.scale * (x @ own.t()) @ its.t(), (columns.start, sum(WIDTHS) - columns.stop)
        )
    expected = x @ W.t() + deltas
    wanted_x, *wanted = torch.autograd.grad(expected, [x, A, *B], dy)

    double = Float64Engine(W, own_thread)
    engine = cast(Engine, double)
    with torch.no_grad():
        y, thin = adapted_forward(engine, "forward", "m", x.detach(), lora)
        dx = adapted_backward(engine, "m", dy, x.detach(), thin, lora, needs_dx=needs_dx)
    torch.testing.assert_close(y, expected.detach(), rtol=1e-12, atol=1e-12)
    for mine, at_first, its in zip(
        (lora.A_gradient, *lora.B_gradients), before, wanted, strict=True
    ):
        torch.testing.assert_close(mine - at_first, its, rtol=1e-12, atol=1e-12)
    assert (dx is None) == (not needs_dx)
    if dx is not None:
        torch.testing.assert_close(dx, wanted_x, rtol=1e-12, atol=1e-12)
    assert double.begun == ["forward", *(["input_gradient"] if needs_dx else [])]


def test_without_an_adapter_there_is_the_product_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    W = torch.randn(sum(WIDTHS), K, generator=generator, dtype=torch.float64)
    x = torch.randn(M, K, generator=generator, dtype=torch.float64)
    double = Float64Engine(W, False)
    engine = cast(Engine, double)
    y, thin = adapted_forward(engine, "recompute", "m", x, None)
    assert thin is None
    assert torch.equal(y, x @ W.t())
    dx = adapted_backward(engine, "m", y, x, None, None, needs_dx=True)
    assert dx is not None
    assert torch.equal(dx, y @ W)
    assert adapted_backward(engine, "m", y, x, None, None, needs_dx=False) is None
    assert double.begun == ["recompute", "input_gradient"]


def make_parts(
    folder: Path, engine_name: str, *, overlap: bool = True, targets: tuple[str, ...] | None = None
) -> tuple[Engine, Decoder, LoraAdapter]:
    path = folder / "weights.lorad"
    if not path.exists():
        write_tiny_weights(path)
    weights = FrozenWeights.open(path)
    options = EngineOptions(threads=1, buckets=(32,), overlap=overlap)
    engine = open_engine(weights, engine_name, options)  # type: ignore[arg-type]
    adapter = LoraAdapter(
        TINY, rank=4, alpha=8.0, seed=5, **({"targets": targets} if targets else {})
    )
    randomise_b(adapter)
    return engine, Decoder(TINY, weights, engine), adapter


def train(folder: Path, engine_name: str, *, overlap: bool) -> dict[str, Any]:
    """Three steps: every loss, every gradient, the adapter at the end, and what was computed."""
    engine, decoder, adapter = make_parts(folder, engine_name, overlap=overlap)
    method = FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=True)
    optimizer = Optimizer(adapter, TrainingSettings())
    losses, gradients = [], []
    for _ in range(3):
        losses.append(method.accumulate(BATCH).loss)
        gradients.append(adapter.gradient.numpy().tobytes())
        optimizer.step(1e-2)
    report = engine.report()
    engine.close()
    return {
        "losses": losses,
        "gradients": gradients,
        "adapter": {key: value.tobytes() for key, value in adapter.to_arrays().items()},
        "products": report["products"],
        "fallbacks": report["fallbacks"],
    }


@pytest.mark.parametrize("engine_name", ENGINES)
def test_overlapped_or_not_the_bits_are_the_same(tmp_path: Path, engine_name: str) -> None:
    beside = train(tmp_path, engine_name, overlap=True)
    after = train(tmp_path, engine_name, overlap=False)
    assert beside == after
    assert beside["fallbacks"] == []
    assert len(set(beside["losses"])) == 3, "a step that changes nothing proves nothing"
    products = beside["products"][engine_name]
    # Per step: 2 layers of 4 products and the head; the recomputation of all but each layer's last;
    # and dx of all but the lowest, below which nothing learns.
    assert products == {"forward": 3 * 9, "recompute": 3 * 6, "input_gradient": 3 * 8}


def test_the_cpu_part_runs_while_the_product_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each product waits until the CPU's part of its linear has begun: in turn, none would end."""
    engine, decoder, adapter = make_parts(tmp_path, "onnx_cpu")
    cpu_began = threading.Semaphore(0)
    pairs: list[str] = []

    def announced(part: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            cpu_began.release()
            return part(*arguments)

        return call

    for name in ("adapter_inputs", "add_adapter_gradients"):
        monkeypatch.setattr(adapted_linear, name, announced(getattr(adapted_linear, name)))
    compute = engine.compute

    def patient(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        if matrix.name != "embed_tokens":
            assert cpu_began.acquire(timeout=20), "the CPU's part waits for the product"
            pairs.append(direction)
        return compute(matrix, direction, a)

    monkeypatch.setattr(engine, "compute", patient)
    FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=True).accumulate(BATCH)
    assert pairs.count("forward") == 14
    assert pairs.count("input_gradient") == 7


@pytest.mark.parametrize("recompute", [True, False])
def test_nothing_is_computed_below_the_lowest_adapter(tmp_path: Path, recompute: bool) -> None:
    engine, decoder, adapter = make_parts(tmp_path, "torch_cpu", targets=("down_proj",))
    FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=recompute).accumulate(BATCH)
    products = engine.report()["products"]["torch_cpu"]
    # The head, and layer 1's down, gate_up, o, qkv; nothing of layer 0.
    assert products["input_gradient"] == 5
    assert products["forward"] == 9
    assert products["recompute"] == (6 if recompute else 0)


@pytest.mark.parametrize("engine_name", ["torch_cpu", "onnx_cpu"])
def test_what_is_not_finite_fails_the_step(tmp_path: Path, engine_name: str) -> None:
    engine, decoder, adapter = make_parts(tmp_path, engine_name)
    adapter.lora_B(0, "k_proj")[0, 0] = torch.inf
    method = FirstOrder(decoder, adapter, micro_batch_tokens=512, recompute=False)
    with pytest.raises(NonFiniteInput, match=r"layers\.0\.self_attn\.o_proj', forward"):
        method.accumulate(BATCH)
    engine.close()
