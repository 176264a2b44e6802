"""The schedule's shape, and a saved optimizer that goes on bit for bit."""

import math

import pytest
import torch

from tests.trainer.oracle import TINY, randomise_b
from trainer.lora import LoraAdapter
from trainer.optimizer import Optimizer, learning_rate_at
from trainer.spec import TrainingSettings


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("total", [1, 2, 7, 40, 400])
def test_rate_rises_then_falls_and_is_never_zero(schedule: str, total: int) -> None:
    settings = TrainingSettings(schedule=schedule)
    rates = [learning_rate_at(step, total, 1e-3, settings) for step in range(total)]
    assert all(0 < rate <= 1e-3 for rate in rates)
    assert max(rates) == 1e-3
    top = rates.index(1e-3)
    assert top <= 5
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    if total == 400:
        assert rates[-1] < 5e-6


def test_defaults_choose_steps_and_rate() -> None:
    assert TrainingSettings().total_steps(300) == 75
    assert TrainingSettings().total_steps(12) == 40
    assert TrainingSettings(steps=3).total_steps(300) == 3
    assert TrainingSettings().peak_learning_rate(75) == 1e-3
    assert TrainingSettings().peak_learning_rate(40) == 2e-3
    assert TrainingSettings(learning_rate=5e-4).peak_learning_rate(40) == 5e-4


def fake_gradients(adapter: LoraAdapter, step: int, scale: float = 0.01) -> None:
    generator = torch.Generator().manual_seed(step)
    adapter.gradient.copy_(torch.randn(adapter.gradient.shape, generator=generator) * scale)


def test_a_restored_optimizer_goes_on_bit_for_bit() -> None:
    settings = TrainingSettings(weight_decay=0.01)
    straight = LoraAdapter(TINY, rank=2, alpha=4.0)
    randomise_b(straight)
    optimizer = Optimizer(straight, settings)
    for step in range(3):
        fake_gradients(straight, step)
        optimizer.step(1e-3)
    saved, moments = straight.to_arrays(), optimizer.to_arrays()

    resumed = LoraAdapter(TINY, rank=2, alpha=4.0, seed=5)
    resumed.load_arrays(saved)
    other = Optimizer(resumed, settings)
    other.load_arrays(moments, 3)
    for step in range(3, 6):
        fake_gradients(straight, step)
        optimizer.step(7e-4)
        fake_gradients(resumed, step)
        other.step(7e-4)
    for key, value in straight.to_arrays().items():
        assert (value == resumed.to_arrays()[key]).all(), key

    without_moments = LoraAdapter(TINY, rank=2, alpha=4.0)
    without_moments.load_arrays(saved)
    forgetful = Optimizer(without_moments, settings)
    for step in range(3, 6):
        fake_gradients(without_moments, step)
        forgetful.step(7e-4)
    assert any(
        (value != without_moments.to_arrays()[key]).any()
        for key, value in straight.to_arrays().items()
    ), "the moments must matter, or this test proves nothing"


def test_gradients_are_clipped_and_non_finite_ones_refused() -> None:
    adapter = LoraAdapter(TINY, rank=2, alpha=4.0)
    optimizer = Optimizer(adapter, TrainingSettings())
    fake_gradients(adapter, 0, scale=100.0)
    assert optimizer.step(1e-3) > 1.0
    before = adapter.to_arrays()
    fake_gradients(adapter, 1)
    next(iter(adapter.named_gradients().values()))[0, 0] = math.nan
    with pytest.raises(FloatingPointError, match="step 2"):
        optimizer.step(1e-3)
    assert all((value == before[key]).all() for key, value in adapter.to_arrays().items())


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_every_step_is_that_of_torchs_own_adamw(decay: float) -> None:
    """Clipped or not; several vectors' worth of numbers, so that no piece is left out."""
    adapter = LoraAdapter(TINY, rank=64, alpha=4.0)
    randomise_b(adapter)
    optimizer = Optimizer(adapter, TrainingSettings(weight_decay=decay, max_grad_norm=5.0))
    expected = torch.nn.Parameter(adapter.flat.double())
    torchs = torch.optim.AdamW([expected], lr=0.0, weight_decay=decay)
    before = adapter.flat.clone()
    for step, scale in enumerate((0.001, 0.5, 0.0, 0.01)):
        fake_gradients(adapter, step, scale)
        expected.grad = adapter.gradient.double()
        norm = torch.nn.utils.clip_grad_norm_([expected], 5.0)
        torchs.param_groups[0]["lr"] = 1e-3 / (step + 1)
        torchs.step()
        assert optimizer.step(1e-3 / (step + 1)) == pytest.approx(float(norm), rel=1e-5)
    moved, wanted = adapter.flat - before, (expected - before).detach()
    assert float((moved - wanted).norm() / wanted.norm()) < 1e-4
    assert bool((moved != 0).all())
