"""The two text-blind predictors against values worked out by hand."""

import pytest

from trainer.priors import majority_accuracy, recency_prior_accuracy


def test_majority() -> None:
    assert majority_accuracy(["a", "b", "b"], ["b", "a", "b", "b"]) == 0.75
    assert majority_accuracy(["a", "b"], ["a", "b"]) == 0.5  # a tie: the first seen
    assert majority_accuracy([], ["a"]) is None
    assert majority_accuracy(["a"], []) is None


def test_recency_follows_a_change_of_habit_and_never_looks_ahead() -> None:
    history = [(i, "old") for i in range(10)] + [(i, "new") for i in range(20, 28)]
    # Before the change the answer is "old", after it "new", though "old" is the majority.
    assert recency_prior_accuracy(history, [(15, "old"), (40, "new")]) == 1.0
    assert recency_prior_accuracy(history, [(15, "new")]) == 0.0
    assert majority_accuracy([label for _, label in history], ["new"]) == 0.0


def test_one_late_exception_does_not_overturn_a_habit() -> None:
    history = [(i, "a") for i in range(30)] + [(30, "b")]
    # Weight of "a": 0.9 + 0.81 + … is above 8; of "b": 1 plus smoothing.
    assert recency_prior_accuracy(history, [(31, "a")]) == pytest.approx(1.0)
