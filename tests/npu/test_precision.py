"""The policy that chooses formats: properties that must hold for any measurements."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.format_shares import format_bytes
from npu.precision import (
    BudgetError,
    Candidate,
    candidate_formats,
    choose_mix,
    propose_mixes,
)
from npu.weight_layout import BLOCK_FORMATS, WeightFileError

FORMATS = ("int4", "int4_min", "int8", "fp16")


@st.composite
def measured(draw: st.DrawFn) -> dict[str, list[Candidate]]:
    """Matrices with one to four candidates; changes and bytes in no particular order."""
    names = [f"layers.{number}" for number in range(draw(st.integers(1, 6)))]
    changes = st.one_of(st.just(0.0), st.floats(1e-6, 2.0))
    return {
        name: [
            Candidate(format, draw(st.integers(1, 60)), draw(changes))
            for format in draw(st.lists(st.sampled_from(FORMATS), min_size=1, unique=True))
        ]
        for name in names
    }


def least(candidates: dict[str, list[Candidate]]) -> int:
    return sum(min(c.bytes for c in choices) for choices in candidates.values())


def most(candidates: dict[str, list[Candidate]]) -> int:
    return sum(max(c.bytes for c in choices) for choices in candidates.values())


tolerances = st.floats(0, 3)
prices = st.one_of(st.just(math.inf), st.floats(0, 1))


@given(measured(), tolerances, st.integers(0, 100), prices)
def test_fits_the_budget_and_takes_only_candidates(
    candidates: dict[str, list[Candidate]], tolerance: float, spare: int, price: float
) -> None:
    budget = least(candidates) + spare
    mix = choose_mix(candidates, tolerance=tolerance, budget=budget, price=price)
    assert mix.formats.keys() == mix.reasons.keys() == candidates.keys()
    chosen = {
        name: next(c for c in candidates[name] if c.format == format)
        for name, format in mix.formats.items()
    }
    assert mix.bytes == sum(c.bytes for c in chosen.values()) <= budget
    assert mix.estimate == pytest.approx(math.hypot(*(c.change for c in chosen.values())))
    exact = math.hypot(*(min(c.change for c in choices) for choices in candidates.values()))
    if mix.estimate > max(tolerance, exact) * (1 + 1e-9):
        assert "budget" in mix.reasons.values()
    assert mix.excess == max(0.0, mix.estimate - tolerance)


@given(measured(), tolerances, prices)
def test_more_budget_never_makes_the_estimate_worse(
    candidates: dict[str, list[Candidate]], tolerance: float, price: float
) -> None:
    def estimate(budget: int | None) -> float:
        mix = choose_mix(candidates, tolerance=tolerance, budget=budget, price=price)
        return mix.estimate

    budgets = range(least(candidates), most(candidates) + 8, 7)
    estimates = [estimate(budget) for budget in budgets]
    for small, large in itertools.pairwise(estimates):
        assert large <= small * (1 + 1e-12)
    assert estimate(None) <= estimates[-1] * (1 + 1e-12)


@given(measured(), tolerances)
def test_without_a_budget_only_what_nothing_could_avoid_exceeds_the_tolerance(
    candidates: dict[str, list[Candidate]], tolerance: float
) -> None:
    mix = choose_mix(candidates, tolerance=tolerance)
    exact = math.hypot(*(min(c.change for c in choices) for choices in candidates.values()))
    assert mix.estimate <= max(tolerance, exact) * (1 + 1e-9)
    assert "budget" not in mix.reasons.values()


@given(measured(), tolerances, st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(
    candidates: dict[str, list[Candidate]], tolerance: float, random: object
) -> None:
    names = list(candidates)
    random.shuffle(names)  # type: ignore[attr-defined]
    shuffled = {name: list(reversed(candidates[name])) for name in names}
    budget = (least(candidates) + most(candidates)) // 2
    first = choose_mix(candidates, tolerance=tolerance, budget=budget)
    again = choose_mix(shuffled, tolerance=tolerance, budget=budget)
    # Candidates of equal bytes and change may be told apart by their place only.
    assert (first.bytes, first.estimate) == (again.bytes, again.estimate)
    assert first == choose_mix(candidates, tolerance=tolerance, budget=budget)


@given(measured())
@settings(max_examples=50)
def test_proposed_mixes_are_never_worse_than_any_single_ladder_can_be(
    candidates: dict[str, list[Candidate]],
) -> None:
    """At the ends of the frontier they are the best there is."""
    smallest, largest = propose_mixes(candidates, [least(candidates), most(candidates)])
    assert smallest.bytes == least(candidates)
    exact = math.hypot(*(min(c.change for c in choices) for choices in candidates.values()))
    assert largest.estimate == pytest.approx(exact)


def test_the_cheapest_error_per_byte_goes_first() -> None:
    candidates = {
        "sensitive": [Candidate("int8", 100, 0.01), Candidate("int4", 60, 0.50)],
        "robust": [Candidate("int8", 100, 0.01), Candidate("int4", 60, 0.03)],
        "large": [Candidate("int8", 900, 0.01), Candidate("int4", 500, 0.06)],
    }
    unlimited = choose_mix(candidates, tolerance=0.1)
    assert unlimited.formats == {"sensitive": "int8", "robust": "int4", "large": "int4"}
    assert unlimited.reasons == {"sensitive": "exact", "robust": "tolerance", "large": "tolerance"}
    assert unlimited.excess == 0.0
    tight = choose_mix(candidates, tolerance=0.02, budget=660)
    assert tight.formats == {"sensitive": "int8", "robust": "int4", "large": "int4"}
    # The large matrix goes first (0.0035 for 400 bytes), and the robust one is then inside no
    # tolerance any more either.
    assert tight.reasons["large"] == "budget"
    assert tight.reasons["robust"] == "budget"
    assert tight.excess == pytest.approx(tight.estimate - 0.02)


def test_past_the_knee_only_the_budget_pays_the_price() -> None:
    """Halving the bytes for little, then a few more for much: the tolerance is no reason for it."""
    candidates = {
        "m": [Candidate("fp16", 200, 0.0), Candidate("int8", 100, 0.01), Candidate("int4", 90, 0.1)]
    }
    assert choose_mix(candidates, tolerance=0.2).formats == {"m": "int4"}
    knee = choose_mix(candidates, tolerance=0.2, price=1e-5)
    assert (knee.formats, knee.reasons) == ({"m": "int8"}, {"m": "tolerance"})
    forced = choose_mix(candidates, tolerance=0.2, price=1e-5, budget=95)
    assert (forced.formats, forced.reasons) == ({"m": "int4"}, {"m": "budget"})
    assert forced.excess == 0.0


def test_a_format_that_is_larger_and_worse_is_never_taken() -> None:
    """A 4-bit source keeps its values in 4 bits: int8 of it is larger and changes more."""
    native = [Candidate("int4_min", 60, 2e-4), Candidate("int8", 100, 1e-2)]
    assert choose_mix({"m": native}, tolerance=0.0).formats == {"m": "int4_min"}


def test_a_step_above_the_line_between_its_neighbours_is_skipped() -> None:
    candidates = [
        Candidate("fp16", 200, 0.0),
        Candidate("int8", 190, 0.4),
        Candidate("int4", 50, 0.5),
    ]
    assert choose_mix({"m": candidates}, tolerance=0.0, budget=195).formats == {"m": "int4"}


def test_a_budget_that_cannot_be_met_names_the_least() -> None:
    candidates = {"a": [Candidate("int8", 100, 0.1)], "b": [Candidate("int4", 60, 0.1)]}
    with pytest.raises(BudgetError, match=r"at least 160 bytes.*found 159"):
        choose_mix(candidates, tolerance=1.0, budget=159)


@pytest.mark.parametrize("change", [math.nan, math.inf, -0.1])
def test_a_change_that_is_no_measurement_is_refused(change: float) -> None:
    with pytest.raises(ValueError, match="finite change"):
        Candidate("int8", 100, change)


@pytest.mark.parametrize("tolerance", [math.nan, -0.1])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        choose_mix({"m": [Candidate("int8", 1, 0.0)]}, tolerance=tolerance)


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_four_bits_only_where_the_columns_can_be_cut_into_blocks(N: int, K: int) -> None:
    formats = candidate_formats(K)
    assert {"int8", "fp16"} <= set(formats)
    assert set(formats) & set(BLOCK_FORMATS) == (set(BLOCK_FORMATS) if K % 32 == 0 else set())
    for format in formats:
        assert format_bytes(format, (N, K)) > 0
    if K % 32:
        with pytest.raises(WeightFileError):
            format_bytes("int4", (N, K))


def test_bytes_per_parameter_of_each_format() -> None:
    shape = (1024, 1280)
    each = {f: format_bytes(f, shape) / (1024 * 1280) for f in candidate_formats(1280)}
    assert each == {"int4": 0.5625, "int4_min": 0.625, "int8": 1 + 4 / 1280, "fp16": 2.0}
