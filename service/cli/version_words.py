"""What was measured of a version, in words."""

from typing import Any


def measured(metrics: dict[str, Any]) -> list[str]:
    """Base, version and baselines on the same held-out rows, a line each."""
    rows = metrics["holdout"]
    lines = [f"on {rows} held-out examples, after {metrics['train']} to learn from:"]
    named = [("the base model", metrics["before"]), ("with this adapter", metrics["after"])]
    if metrics.get("active") is not None:
        named.append(("with the version active before", metrics["active"]))
    for title, measures in named:
        parts = []
        if measures.get("accuracy") is not None:
            parts.append(f"{share(measures['accuracy'])} right")
        if measures.get("label_nll") is not None:
            parts.append(f"label loss {number(measures['label_nll'])}")
        if measures.get("loss") is not None:
            parts.append(f"loss per token {number(measures['loss'])}")
        lines.append(f"  {title}: {', '.join(parts) or 'not measured'}")
    for title, key in (
        ("always the majority label", "majority_accuracy"),
        ("the label most frequent of late", "recency_prior_accuracy"),
    ):
        if metrics.get(key) is not None:
            lines.append(f"  {title}: {share(metrics[key])} right")
    return lines


def share(value: float | None) -> str:
    """An accuracy in percent; '-' where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """A loss; '-' where there is none."""
    return "-" if value is None else f"{value:.3f}"
