"""The plan: within its budget always, fastest where there is room, and refused in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.test_micro_batches import SMOLLM2
from trainer.halving import halved_tokens
from trainer.lora import TARGETS, LoraAdapter
from trainer.memory import MIB, Amounts, Work, predicted, predicted_bytes
from trainer.plan import BudgetError, Choices, _time, plan

WORK = Work(
    config=SMOLLM2,
    weight_bytes=95_034_880,
    rank=8,
    targets=TARGETS,
    layers=30,
    engine="torch_cpu",
    threads=2,
    longest_example=512,
    longest_evaluation=520,
    examples=450,
)
works = st.builds(
    replace,
    st.just(WORK),
    rank=st.sampled_from([1, 8, 64]),
    layers=st.integers(1, 30),
    engine=st.sampled_from(["torch_cpu", "onnx_cpu", "qnn"]),
    longest_example=st.integers(16, 4096),
    examples=st.integers(1, 10_000),
    decodable_bytes=st.integers(0, 1000 * MIB),
)
choices = st.builds(
    Choices,
    st.none() | st.integers(1, 1024),
    st.sampled_from([None, True, False]),
)
budgets = st.integers(300, 6000).map(lambda mb: mb * MIB)


def made(work: Work, budget: int, given_choices: Choices, halvings: int = 0) -> Amounts | None:
    try:
        return plan(work, budget, given_choices, halvings)
    except BudgetError:
        return None


@given(works, budgets, choices, st.integers(0, 5))
def test_never_over_the_budget_and_always_the_same(
    work: Work, budget: int, given_choices: Choices, halvings: int
) -> None:
    found = made(work, budget, given_choices, halvings)
    assert found == made(work, budget, given_choices, halvings)
    if found is not None:
        assert predicted_bytes(work, found) <= budget
        if given_choices.recompute:
            assert found.keep_tokens == 0
        elif given_choices.recompute is False:
            assert found.keep_tokens >= found.most_tokens(work)
        if given_choices.micro_batch_tokens is not None and not halvings:
            assert found.micro_batch_tokens == given_choices.micro_batch_tokens


@given(works, budgets, st.integers(0, 3000), choices)
def test_more_memory_is_never_slower_and_never_refused(
    work: Work, budget: int, more: int, given_choices: Choices
) -> None:
    less, found = (made(work, one, given_choices) for one in (budget, budget + more * MIB))
    if less is not None:
        assert found is not None
        assert _time(found) <= _time(less)


@given(works, budgets, choices, st.integers(0, 8))
def test_a_halving_is_never_refused_and_never_takes_more(
    work: Work, budget: int, given_choices: Choices, halvings: int
) -> None:
    if (before := made(work, budget, given_choices, halvings)) is not None:
        after = plan(work, budget, given_choices, halvings + 1)
        assert predicted_bytes(work, after) <= max(
            predicted_bytes(work, before), (predicted_bytes(work, before) + budget) // 2
        )
    if (whole := made(work, budget, given_choices)) is not None:
        after = plan(work, budget, given_choices, 1)
        if given_choices.micro_batch_tokens is not None:
            # Half of them have a smallest plan of their own, and may be quicker than all of them,
            # if only of the half all that the backward pass needs can be kept.
            given = halved_tokens(given_choices.micro_batch_tokens, 1)
            assert after.micro_batch_tokens == given
            return
        least = predicted_bytes(work, plan(work, budget, given_choices, 60))
        assert predicted_bytes(work, after) <= least + (budget - least) // 2
        assert _time(whole) <= _time(after)


def test_with_room_nothing_is_recomputed_and_without_the_longest_are_first() -> None:
    roomy = plan(WORK, 1500 * MIB)
    assert (roomy.micro_batch_tokens, roomy.keep_tokens) == (512, 512)
    tighter = plan(WORK, 760 * MIB)
    assert 128 <= tighter.micro_batch_tokens <= tighter.keep_tokens < 512
    tightest = plan(WORK, 590 * MIB)
    assert tightest.keep_tokens < tightest.micro_batch_tokens


def test_what_is_left_of_the_budget_goes_to_decoded_weights() -> None:
    work = replace(WORK, decodable_bytes=212 * MIB)
    for budget in (600, 700, 1024):
        without, found = plan(WORK, budget * MIB), plan(work, budget * MIB)
        assert replace(found, decoded_bytes=0) == without
        left = budget * MIB - predicted_bytes(WORK, without)
        assert found.decoded_bytes == min(left, 212 * MIB)
    assert plan(work, None).decoded_bytes == 0


def test_a_budget_that_nothing_fits_is_refused_with_what_would_fit() -> None:
    with pytest.raises(BudgetError, match=r"fits into 400 MB .* found that (\d+) MB") as caught:
        plan(WORK, 400 * MIB)
    needed = int(str(caught.value).split("found that ")[1].split()[0])
    assert "512 tokens; set LORAD_MEMORY_MB" in str(caught.value)
    plan(WORK, needed * MIB)
    with pytest.raises(BudgetError):
        plan(WORK, (needed - 1) * MIB)
    plan(replace(WORK, longest_example=64, longest_evaluation=64), (needed - 1) * MIB)


def test_a_run_of_an_earlier_lorad_computes_as_it_did() -> None:
    before = Choices(micro_batch_tokens=512, recompute=True)
    assert plan(WORK, None, before) == Amounts(512, 0, (1 << 24) // 49_152, 512)
    halved = plan(WORK, None, before, halvings=2)
    assert (halved.micro_batch_tokens, halved.evaluation_tokens) == (128, 128)
    assert halved.logit_rows == (1 << 24) // 49_152


def test_the_adapter_is_predicted_as_it_is() -> None:
    work = replace(WORK, rank=4, layers=3, targets=("q_proj", "v_proj", "down_proj"))
    adapter = LoraAdapter(SMOLLM2, rank=4, alpha=8.0, layers=3, targets=work.targets)
    amounts = plan(work, 2000 * MIB)
    found = predicted(work, amounts)["adapter with its gradient and moments"]
    assert found == 4 * adapter.flat.nbytes
