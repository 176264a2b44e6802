"""The figures at the end: what the JSON holds, and that the table shows them."""

import json
from typing import Any

import pytest
from rich.console import Console

from service.demo import baselines
from service.demo.player import Outcome
from service.demo.report import Circumstances, print_table, summarise
from service.demo.rows import Row, RowSet

# Training labels a a b; held out b a a b, of which the base has one right, the adapter all.
ROWS = RowSet(
    (
        *(Row(f"learn {n}", label, "train") for n, label in enumerate("aab")),
        *(Row(f"private words {n}", label, "holdout") for n, label in enumerate("baab")),
    ),
    "mine.jsonl",
    ("something to know",),
)
PROMISED = {
    "accuracy_before",
    "accuracy_after",
    "loss_before",
    "loss_after",
    "holdout",
    "steps",
    "seconds",
    "engine",
    "products",
    "adapter",
}


@pytest.fixture
def summary() -> dict[str, Any]:
    metrics = {
        "holdout": 4,
        "train": 3,
        "before": {"accuracy": 0.25, "loss": 7.5, "label_nll": 1.5},
        "after": {"accuracy": 1.0, "loss": 0.125, "label_nll": 0.25},
    }
    engine = {
        "engine": "torch_cpu",
        "products": {"torch_cpu": {"forward": 11, "recompute": 5, "input_gradient": 5}},
        "fallbacks": [{"engine": "qnn", "cause": "no such device"}],
    }
    outcome = Outcome(
        run={"total_steps": 12},
        version={
            "metrics": metrics,
            "engine": engine,
            "verdict": "insufficient",
            "verdict_reason": "4 held-out rows, expected 30",
        },
        base_predictions=["a", "b", "a", "a"],
        adapter_predictions=["b", "a", "a", "b"],
        archive=b"x" * 2_000_000,
        cut_tokens=3,
    )
    return summarise(ROWS, outcome, Circumstances("tiny", 5, 20.04, 10.0, "/kept/adapter"))


def test_the_json_holds_every_promised_key(summary: dict[str, Any]) -> None:
    assert set(summary) >= PROMISED
    assert summary["accuracy_before"] == 0.25
    assert summary["loss_after"] == 0.125
    assert summary["steps"] == 12
    assert summary["seconds"] == 20.0
    assert summary["adapter"] == "/kept/adapter"
    assert summary["products"]["torch_cpu"]["forward"] == 11
    assert json.loads(json.dumps(summary)) == summary


def test_the_baselines_are_measured_on_the_same_rows(summary: dict[str, Any]) -> None:
    assert summary["baselines"]["majority"] == 0.5
    assert set(summary["baselines"]) == {"majority", "recency_prior", "word_model"}
    assert set(summary["paired"]) == {"majority", "recency_prior", "word_model", "base"}


def test_the_paired_test_counts_the_adapters_rows_first(summary: dict[str, Any]) -> None:
    # The base has only row 2 right, the adapter all four: three coins, all heads.
    assert summary["paired"]["base"] == {"only_first": 3, "only_second": 0, "p_value": 0.25}
    assert summary["paired"]["majority"] == {"only_first": 2, "only_second": 0, "p_value": 0.5}


def test_no_text_of_an_example_is_in_the_summary(summary: dict[str, Any]) -> None:
    assert "private words" not in json.dumps(summary)


def test_the_table_shows_scores_engine_products_fallbacks_and_place(
    summary: dict[str, Any],
) -> None:
    console = Console(width=200, record=True)
    print_table(summary, console)
    text = console.export_text()
    for expected in (
        "25.0 %", "100.0 %", "7.500", "0.125", "50.0 %", "torch_cpu", "forward 11",
        "no such device", "12 steps", "insufficient", "3 tokens were cut", "something to know",
        "/kept/adapter", "2.0 MB",
    ):  # fmt: skip
        assert expected in text


def test_without_scikit_learn_the_word_model_is_named_as_missing(
    summary: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "find_spec", lambda name: None)
    assert baselines.word_model(ROWS.rows) is None
    missing = summary | {
        "baselines": summary["baselines"] | {"word_model": None},
        "paired": summary["paired"] | {"word_model": None},
    }
    console = Console(width=200, record=True)
    print_table(missing, console)
    text = console.export_text()
    assert "not installed" in text
