"""The compiled context holds one copy of a weight for both directions; static pairs hold two."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.one_copy import GOALS, LARGEST_ERROR, bytes_per_parameter, planned_cases, run_case
from bench.one_copy import summarise as summarise_cases
from bench.one_copy_case import FORMS, Case, Form, Scope
from bench.one_copy_shapes import MODELS, SMALLEST, Shape


def test_the_shapes_are_the_models_own() -> None:
    sizes = {m.name: {s.name: (s.N, s.K) for s in m.layer()} for m in MODELS}
    assert sizes["SmolLM2-135M"]["qkv_proj"] == (960, 576)
    assert sizes["SmolLM2-135M"]["gate_up_proj"] == (3072, 576)
    assert sizes["Qwen2.5-0.5B"]["qkv_proj"] == (1152, 896)
    assert sizes["Qwen2.5-0.5B"]["down_proj"] == (896, 4864)
    assert sizes["Llama-3.2-1B"]["qkv_proj"] == (3072, 2048)
    assert sizes["Llama-3.2-1B"]["o_proj"] == (2048, 2048)
    for case in planned_cases(quick=False, every_shape=True):
        assert case.parameters >= SMALLEST


def test_a_missed_goal_a_failure_and_a_wrong_result_are_told() -> None:
    rows = [
        {
            "form": form,
            "scope": "both",
            "model": "m",
            "shape": None,
            "parameters": 100,
            "bytes": int(100 * GOALS.get(form, 4)) - 10,
            "spill_bytes": 5,
        }
        for form in FORMS
    ]
    assert all(goal["met"] for goal in summarise_cases(rows)["goals"].values())
    by_form = {row["form"]: row for row in rows}
    fp16, int4 = by_form["fp16"], by_form["int4"]
    int4["spill_bytes"] = 20
    fp16["failure"] = "expected errors up to 0.002, found 1.4e+00"
    summary = summarise_cases(rows)
    assert summary["int4"]["both"] == 0.8
    assert summary["fp16"]["both"] is None
    missed = {form for form, goal in summary["goals"].items() if not goal["met"]}
    assert missed == {"int4", "fp16"}


@pytest.mark.emulator
@pytest.mark.slow
def test_both_directions_take_less_than_the_static_pair_and_are_right() -> None:
    shapes = (Shape("small", 1152, 640),)
    wanted: list[tuple[Form, Scope]] = [
        ("int4_min", "forward"),
        ("int4_min", "both"),
        ("int8", "forward"),
        ("int8", "both"),
        ("static_a16w8", "both"),
        ("static_a16w4", "both"),
    ]
    cases = [Case(form, scope, "a test's", "small", shapes) for form, scope in wanted]
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(run_case, cases))
    found = {}
    for (form, scope), row in zip(wanted, rows, strict=True):
        assert "failure" not in row, row
        assert 0 < max(row["errors"].values()) <= LARGEST_ERROR
        assert set(row["errors"]) == ({"y"} if scope == "forward" else {"y", "dx"})
        found[form, scope] = bytes_per_parameter([row]) or 0.0
    assert found["int8", "both"] < 1.15 < 2.0 < found["static_a16w8", "both"]
    assert found["int4_min", "both"] < found["static_a16w4", "both"]
    # Fixed costs of a graph, never another copy of the codes.
    assert found["int8", "both"] - found["int8", "forward"] < 0.15
    assert found["int4_min", "both"] - found["int4_min", "forward"] < 0.25


@pytest.mark.emulator
def test_a_gemm_pair_is_small_and_wrong() -> None:
    """What the check of the results is for: bytes alone would crown it."""
    row = run_case(Case("gemm_pair", "both", "square", "square", (Shape("square", 512, 512),)))
    assert row["bytes"] / row["parameters"] < 2.5
    assert row["errors"]["y"] > 1
    assert row["errors"]["dx"] < LARGEST_ERROR
