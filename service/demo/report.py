"""What the demo says at its end: one JSON object, or a small table of the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from service.demo import baselines
from service.demo.paired import paired_test
from service.demo.player import Outcome
from service.demo.rows import RowSet


@dataclass(frozen=True)
class Circumstances:
    """What the daemon can't know about this demo."""

    model: str
    seed: int
    seconds: float
    """Of the whole demo, with the model added and the daemon started."""
    run_seconds: float
    """From the trigger to the finished version."""
    adapter: str
    """Folder of the adapter."""


def summarise(rows: RowSet, outcome: Outcome, circumstances: Circumstances) -> dict[str, Any]:
    """All figures of one demo, JSON-able; it holds no text of any example."""
    truth = [row.label for row in rows.holdout]
    predictions: dict[str, Sequence[str | None] | None] = {
        "majority": baselines.majority(rows.rows),
        "recency_prior": baselines.recency_prior(rows.rows),
        "word_model": baselines.word_model(rows.rows),
        "base": outcome.base_predictions,
    }
    adapter_right = _right(outcome.adapter_predictions, truth)
    right = {
        name: None if given is None else _right(given, truth) for name, given in predictions.items()
    }
    metrics = outcome.version["metrics"]
    engine = outcome.version["engine"]
    return {
        "accuracy_before": metrics["before"]["accuracy"],
        "accuracy_after": metrics["after"]["accuracy"],
        "loss_before": metrics["before"]["loss"],
        "loss_after": metrics["after"]["loss"],
        "holdout": metrics["holdout"],
        "train": metrics["train"],
        "steps": outcome.run["total_steps"],
        "seconds": round(circumstances.seconds, 1),
        "run_seconds": round(circumstances.run_seconds, 1),
        "engine": engine["engine"],
        "products": engine["products"],
        "fallbacks": engine["fallbacks"],
        "adapter": circumstances.adapter,
        "adapter_download_bytes": len(outcome.archive),
        "baselines": {
            name: None if given is None else sum(given) / len(given)
            for name, given in right.items()
            if name != "base"
        },
        "paired": {
            name: None if given is None else paired_test(adapter_right, given).to_json()
            for name, given in right.items()
        },
        "label_nll_before": metrics["before"]["label_nll"],
        "label_nll_after": metrics["after"]["label_nll"],
        "verdict": outcome.version["verdict"],
        "verdict_reason": outcome.version["verdict_reason"],
        "model": circumstances.model,
        "seed": circumstances.seed,
        "data": rows.source,
        "labels": rows.labels,
        "cut_tokens": outcome.cut_tokens,
        "notes": list(rows.notes),
    }


def print_table(summary: Mapping[str, Any], console: Console) -> None:
    """The summary for people."""
    console.print(_score_table(summary))
    for name, words in (
        ("base", "the base model"),
        ("majority", "the majority"),
        ("word_model", "the word model"),
    ):
        test = summary["paired"][name]
        if test is not None:
            console.print(
                f"Adapter against {words}: {test['only_first']} rows only the adapter has right, "
                f"{test['only_second']} only the other; p = {test['p_value']:.2g} (exact McNemar)."
            )
    products = "; ".join(
        f"{engine}: " + ", ".join(f"{kind} {count}" for kind, count in counts.items())
        for engine, counts in summary["products"].items()
    )
    console.print(f"Engine: {summary['engine']}. Frozen products: {products}.")
    for fallback in summary["fallbacks"]:
        console.print(f"Fallback from {fallback['engine']}: {fallback['cause']}", style="yellow")
    console.print(
        f"{summary['steps']} steps on {summary['train']} examples; the run took "
        f"{summary['run_seconds']:.0f} s, everything {summary['seconds']:.0f} s."
    )
    console.print(f"Verdict: {summary['verdict']}. {summary['verdict_reason']}", markup=False)
    if summary["cut_tokens"]:
        console.print(f"{summary['cut_tokens']} tokens were cut from inputs that were too long.")
    for note in summary["notes"]:
        console.print(f"Note: {note}.", markup=False)
    size = f"{summary['adapter_download_bytes'] / 1e6:.1f} MB to download"
    console.print(f"The adapter ({size}) lies in {summary['adapter']}", soft_wrap=True)


def _score_table(summary: Mapping[str, Any]) -> Table:
    table = Table(title=f"{summary['holdout']} held-out rows of {summary['data']}")
    table.add_column("predictor")
    table.add_column("accuracy", justify="right")
    table.add_column("loss", justify="right")
    scores = summary["baselines"]
    table.add_row("majority label", _percent(scores["majority"]), "")
    table.add_row("recency prior", _percent(scores["recency_prior"]), "")
    words = scores["word_model"]
    table.add_row("word model", "not installed" if words is None else _percent(words), "")
    for name, side in (("base model", "before"), ("with its adapter", "after")):
        table.add_row(name, _percent(summary[f"accuracy_{side}"]), f"{summary[f'loss_{side}']:.3f}")
    return table


def _right(predictions: Sequence[str | None], truth: Sequence[str]) -> list[bool]:
    return [given == label for given, label in zip(predictions, truth, strict=True)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
