"""Whether a new version may replace what is active: only if it is measured to be better."""

from dataclasses import dataclass

from api_schemas.versions import Measures, Metrics
from storage.tables import Verdict

LEAST_HOLDOUT = 30
"""With fewer held-out rows a measurement can't decide; the client may."""


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reason in words and numbers."""

    verdict: Verdict
    reason: str


def judge(metrics: Metrics, *, has_labels: bool, has_active: bool) -> Judgement:
    """Judge a version on the holdout rows it shares with the base and the active version.

    The measure is the label NLL where the adapter declares labels, else the loss.
    """
    if metrics.holdout < LEAST_HOLDOUT:
        return Judgement(
            "insufficient",
            f"{metrics.holdout} held-out examples are too few to decide; "
            f"at least {LEAST_HOLDOUT} are needed",
        )
    name = "label NLL" if has_labels else "loss"
    after, before = _measure(metrics.after, has_labels), _measure(metrics.before, has_labels)
    if after is None or before is None:
        return Judgement("rejected", f"its {name} on the holdout was not measured")
    rows = f"on {metrics.holdout} held-out examples"
    if after >= before:
        return Judgement(
            "rejected",
            f"its {name} of {after:.4f} {rows} is no better than the base's {before:.4f}",
        )
    found = f"its {name} of {after:.4f} {rows} is better than the base's {before:.4f}"
    if not has_active:
        return Judgement("promoted", found)
    active = None if metrics.active is None else _measure(metrics.active, has_labels)
    if active is None:
        return Judgement(
            "rejected",
            f"{found}, but the active version, which became so while it trained, was not measured "
            "on them",
        )
    if after >= active:
        return Judgement(
            "rejected", f"{found}, but no better than the active version's {active:.4f}"
        )
    return Judgement("promoted", f"{found} and than the active version's {active:.4f}")


def _measure(measures: Measures, has_labels: bool) -> float | None:
    return measures.label_nll if has_labels else measures.loss
