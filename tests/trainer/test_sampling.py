"""What tokens are drawn with, against `transformers`' own filters, and that they are drawn so."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from trainer.predict.sampling import Sampler, filtered

LOGITS = torch.randn(40, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_probabilities_equal_transformers(temperature: float, top_p: float) -> None:
    for seed in range(20):
        logits = torch.randn(300, generator=torch.Generator().manual_seed(seed)) * 3
        filters = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
        if top_p < 1:
            filters.append(TopPLogitsWarper(top_p))
        scores = filters(torch.zeros(1, 1, dtype=torch.int64), logits.double()[None])
        expected = torch.softmax(scores[0], -1)
        found = filtered(logits, temperature, top_p)
        assert torch.equal(found > 0, expected > 0)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("top_p", [1.0, 0.8])
@pytest.mark.parametrize("how", ["one text", "many seeds"])
def test_tokens_are_drawn_with_these_probabilities(top_p: float, how: str) -> None:
    """Chi-square over the tokens that are to come at least five times."""
    draws = 8000
    one = Sampler(1.0, top_p, 7)
    counts = torch.zeros(40, dtype=torch.float64)
    for seed in range(draws):
        sampler = one if how == "one text" else Sampler(1.0, top_p, seed)
        counts[sampler.choose(LOGITS)] += 1
    expected = filtered(LOGITS, 1.0, top_p) * draws
    assert counts[expected == 0].sum() == 0
    often = expected >= 5
    assert often.sum() > 8
    statistic = float(((counts - expected)[often].square() / expected[often]).sum())
    freedom = int(often.sum()) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_other_texts_change_nothing() -> None:
    alone = Sampler(1.0, 1.0, 3)
    expected = [alone.choose(LOGITS) for _ in range(50)]
    first, other = Sampler(1.0, 1.0, 3), Sampler(1.0, 0.5, 4)
    found = []
    for _ in range(50):
        found.append(first.choose(LOGITS))
        other.choose(LOGITS)
        torch.rand(3)
    assert found == expected
    assert [other.choose(LOGITS) for _ in range(50)] != expected


def test_temperature_zero_takes_the_first_of_the_likeliest() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 3.0])
    assert {Sampler(0.0, 0.5, seed).choose(logits) for seed in range(9)} == {1}


@pytest.mark.parametrize("top_p", [0.0, 1e-12])
def test_no_share_at_all_leaves_the_likeliest(top_p: float) -> None:
    assert {Sampler(1.5, top_p, seed).choose(LOGITS) for seed in range(9)} == {int(LOGITS.argmax())}


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_mean_nothing_are_no_token(value: float, temperature: float) -> None:
    with pytest.raises(FloatingPointError, match="finite logits"):
        Sampler(temperature, 1.0, 0).choose(torch.tensor([0.0, value, 1.0]))
