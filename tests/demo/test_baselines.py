"""The baselines against values worked out by hand, and on the shipped notifications."""

import builtins
import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.demo import baselines
from service.demo.paired import paired_test
from service.demo.rows import Row, built_in_rows


def rows(*entries: str) -> list[Row]:
    """`a` is a training row with label a, `?a` a held-out one."""
    return [
        Row(f"text {index}", entry.lstrip("?"), "holdout" if "?" in entry else "train")
        for index, entry in enumerate(entries)
    ]


def accuracy(predictions: list[str] | None) -> float:
    truth = [row.label for row in built_in_rows().holdout]
    assert predictions is not None
    return sum(a == b for a, b in zip(predictions, truth, strict=True)) / len(truth)


def test_majority_counts_training_labels_only() -> None:
    assert baselines.majority(rows("a", "?b", "?b", "b", "?b", "a")) == ["a", "a", "a"]


def test_majority_takes_the_first_seen_of_equals() -> None:
    assert baselines.majority(rows("b", "a", "?a")) == ["b"]


def test_recency_prior_sees_what_came_before_a_row_and_nothing_later() -> None:
    # Shares: a 2/5, b 3/5, so .2 and .3 before the history speaks.
    # After a a: a .2+1+.9, b .3. After a a b: a .2+.9+.81 = 1.91, b .3+1 = 1.3.
    # After a a b b: a .2+.81+.729 = 1.739, b .3+1+.9 = 2.2.
    given_rows = rows("a", "a", "?a", "b", "?a", "b", "?a", "b")
    assert baselines.recency_prior(given_rows) == ["a", "a", "b"]


def test_recency_prior_lets_recent_rows_outweigh_more_numerous_old_ones() -> None:
    # Eight of a, then five of b: a .5*8/13 + .9**5*(1-.9**8)/.1 = 3.67, b .5*5/13 + 4.10 = 4.29.
    assert baselines.recency_prior(rows(*"aaaaaaaabbbbb", "?a")) == ["b"]
    # With four of b: a .5*8/12 + .9**4*(1-.9**8)/.1 = 4.07, b .5*4/12 + 3.44 = 3.61.
    assert baselines.recency_prior(rows(*"aaaaaaaabbbb", "?a")) == ["a"]


def test_recency_prior_answers_from_the_whole_history_when_nothing_came_before() -> None:
    assert baselines.recency_prior(rows("?a", "a", "b", "b")) == ["b"]


def test_word_model_learns_words_and_pairs_of_words() -> None:
    train = [
        Row(f"{word} not {other} {i}", label, "train")
        for i in range(20)
        for word, other, label in (("good", "bad", "up"), ("bad", "good", "down"))
    ]
    held_out = [Row("not bad", "up", "holdout"), Row("not good", "down", "holdout")]
    assert baselines.word_model(train + held_out) == ["up", "down"]


def test_word_model_reads_signs_without_letters() -> None:
    train = [Row(sign * 2, label, "train") for sign, label in (("🎈", "up"), ("💧", "down"))] * 5
    assert baselines.word_model([*train, Row("🎈 🎈", "up", "holdout")]) == ["up"]


def test_word_model_says_none_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    real_find, real_import = importlib.util.find_spec, builtins.__import__
    monkeypatch.setattr(
        baselines, "find_spec", lambda name: None if name == "sklearn" else real_find(name)
    )

    def without(name: str, *rest: object) -> object:
        assert not name.startswith("sklearn")
        return real_import(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert baselines.word_model(rows("a", "b", "?a")) is None


def test_the_word_model_beats_the_majority_on_our_rows_and_leaves_room() -> None:
    shipped = built_in_rows().rows
    assert accuracy(baselines.majority(shipped)) <= 0.4
    words = accuracy(baselines.word_model(shipped))
    assert 0.6 <= words <= 0.82


def test_paired_test_against_hand_counted_coins() -> None:
    # 5 rows only the first has right, 1 only the second: 2 * (1 + 6) / 64.
    test = paired_test([True] * 5 + [False, True], [False] * 5 + [True, True])
    assert (test.only_first, test.only_second) == (5, 1)
    assert test.p_value == pytest.approx(14 / 64)


def test_paired_test_of_equals_is_one() -> None:
    assert paired_test([True, False], [True, False]).p_value == 1.0
    assert paired_test([True, False], [False, True]).p_value == 1.0


def test_paired_test_refuses_different_rows() -> None:
    with pytest.raises(ValueError, match="1 and 2 rows"):
        paired_test([True], [True, False])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=120))
def test_paired_test_agrees_with_scipy_and_is_symmetric(pairs: list[tuple[bool, bool]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    test = paired_test(first, second)
    assert test.p_value == paired_test(second, first).p_value
    tosses = test.only_first + test.only_second
    if tosses:
        # scipy's own two-sided test of the same coin; both are exact up to rounding.
        expected = stats.binomtest(test.only_first, tosses).pvalue
        assert test.p_value == pytest.approx(expected, rel=1e-9)
