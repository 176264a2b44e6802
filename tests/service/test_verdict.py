import pytest
from pydantic import ValidationError

from api_schemas.versions import Measures, Metrics
from service.runs.verdict import LEAST_HOLDOUT, judge


def metrics(
    before: float | None, after: float | None, active: float | None = None, holdout: int = 80
) -> Metrics:
    """The value as label NLL and, with another sign, as loss: a mix-up turns verdicts."""

    def measures(value: float | None) -> Measures:
        return Measures(label_nll=value, loss=None if value is None else 10 - value)

    return Metrics(
        holdout=holdout,
        train=200,
        before=measures(before),
        after=measures(after),
        active=None if active is None else measures(active),
    )


@pytest.mark.parametrize(
    ("before", "after", "active", "has_active", "verdict"),
    [
        (1.4, 0.4, None, False, "promoted"),
        (1.4, 1.4, None, False, "rejected"),
        (1.4, 1.5, None, False, "rejected"),
        (1.4, 0.4, 0.5, True, "promoted"),
        (1.4, 0.5, 0.5, True, "rejected"),
        (1.4, 0.6, 0.5, True, "rejected"),
        (1.4, 1.5, 1.6, True, "rejected"),
        (1.4, 0.4, None, True, "rejected"),
        (None, 0.4, None, False, "rejected"),
        (1.4, None, None, False, "rejected"),
    ],
)
def test_only_a_measured_improvement_is_promoted(
    before: float | None,
    after: float | None,
    active: float | None,
    has_active: bool,
    verdict: str,
) -> None:
    judgement = judge(metrics(before, after, active), has_labels=True, has_active=has_active)
    assert judgement.verdict == verdict
    for value in (after, before):
        if value is not None and None not in (before, after):
            assert f"{value:.4f}" in judgement.reason


def test_few_rows_decide_nothing() -> None:
    for rows, verdict in ((0, "insufficient"), (LEAST_HOLDOUT - 1, "insufficient"),
                          (LEAST_HOLDOUT, "promoted")):  # fmt: skip
        given = metrics(1.4, 0.4, holdout=rows)
        assert judge(given, has_labels=True, has_active=False).verdict == verdict


def test_without_labels_the_loss_decides() -> None:
    assert judge(metrics(1.0, 2.0), has_labels=False, has_active=False).verdict == "promoted"
    assert judge(metrics(1.0, 2.0), has_labels=True, has_active=False).verdict == "rejected"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_no_measure(value: float) -> None:
    with pytest.raises(ValidationError):
        Measures(label_nll=value)
