"""The shipped notifications keep what RULES.md promises."""

import re
from collections import Counter
from datetime import date, timedelta
from importlib.resources import files
from itertools import combinations
from typing import Any

import pytest

from service.demo.rows import built_in_rows, same_text
from tests.demo.conftest import Notifications, day_of

FIELDS = {"at", "app", "sender", "text", "input", "label", "split", "rule", "noise"}


def five_grams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + 5]) for start in range(len(words) - 4)}


def test_enough_rows_and_nothing_but_the_declared_fields(notifications: Notifications) -> None:
    assert len(notifications.rows) >= 340
    assert len(notifications.side("train")) >= 260
    assert len(notifications.side("holdout")) >= 80
    assert len(notifications.side("train")) + len(notifications.side("holdout")) == len(
        notifications.rows
    )
    assert all(set(row) == FIELDS for row in notifications.rows)


def test_the_input_is_one_line_made_of_app_sender_and_text(notifications: Notifications) -> None:
    for row in notifications.rows:
        assert row["input"] == f"{row['app']} · {row['sender']}: {row['text']}"
        assert "\n" not in row["input"]
        assert len(row["text"].split()) >= 4


def test_rows_lie_in_order_over_six_weeks(notifications: Notifications) -> None:
    times = [row["at"] for row in notifications.rows]
    assert times == sorted(set(times))
    first = date.fromisoformat(notifications.table["first_day"])
    last = date.fromisoformat(notifications.table["last_day"])
    assert last - first == timedelta(days=41)
    assert all(first <= day_of(row) <= last for row in notifications.rows)
    for week in range(6):
        monday = first + timedelta(weeks=week)
        here = [r for r in notifications.rows if monday <= day_of(r) < monday + timedelta(days=7)]
        assert sum(row["split"] == "train" for row in here) >= 20
        assert sum(row["split"] == "holdout" for row in here) >= 5


def test_no_five_words_in_a_row_cross_the_cut(notifications: Notifications) -> None:
    learnt = {
        gram: row["text"] for row in notifications.side("train") for gram in five_grams(row["text"])
    }
    shared = [
        (row["text"], learnt[gram])
        for row in notifications.side("holdout")
        for gram in five_grams(row["text"]) & set(learnt)
    ]
    assert shared == []


def test_no_text_occurs_twice(notifications: Notifications) -> None:
    counted = Counter(same_text(row["text"]) for row in notifications.rows)
    assert [text for text, count in counted.items() if count > 1] == []


def test_every_label_follows_from_its_rule_unless_marked_as_noise(
    notifications: Notifications,
) -> None:
    for row in notifications.rows:
        expected = notifications.label(row["rule"], day_of(row))
        assert (row["label"] != expected) == row["noise"], row["input"]


def test_every_row_is_in_the_reach_of_its_rule(notifications: Notifications) -> None:
    for row in notifications.rows:
        rule = notifications.rules[row["rule"]]
        assert row["app"] in rule["apps"], row["input"]
        assert rule["senders"] == "*" or row["sender"] in rule["senders"], row["input"]


def test_eight_to_twelve_rules_of_three_kinds_half_of_them_against_common_sense(
    notifications: Notifications,
) -> None:
    rules = list(notifications.rules.values())
    assert 8 <= len(rules) == len(notifications.table["rules"]) <= 12
    assert {rule["kind"] for rule in rules} == {"sender", "topic", "sender x topic"}
    assert sum(rule["against_common_sense"] for rule in rules) * 2 >= len(rules)
    assert all((rule["topic"] is None) == (rule["kind"] == "sender") for rule in rules)


def test_each_rule_has_ten_clean_rows_to_learn_from_and_some_held_out(
    notifications: Notifications,
) -> None:
    learnt = Counter(row["rule"] for row in notifications.side("train") if not row["noise"])
    held_out = Counter(row["rule"] for row in notifications.side("holdout"))
    assert set(learnt) == set(held_out) == set(notifications.rules)
    assert min(learnt.values()) >= 10
    assert min(held_out.values()) >= 5


def test_no_label_has_more_than_two_fifths_of_a_side(notifications: Notifications) -> None:
    for split in ("train", "holdout"):
        rows = notifications.side(split)
        shares = Counter(row["label"] for row in rows)
        assert set(shares) == set(notifications.table["labels"])
        assert max(shares.values()) <= 0.4 * len(rows)


def test_about_a_twentieth_of_the_training_rows_is_noise_and_no_held_out_row(
    notifications: Notifications,
) -> None:
    train = notifications.side("train")
    assert 0.04 <= sum(row["noise"] for row in train) / len(train) <= 0.06
    assert not any(row["noise"] for row in notifications.side("holdout"))


def test_one_rule_flips_in_the_last_third_and_is_seen_on_both_sides_of_it(
    notifications: Notifications,
) -> None:
    flipping = [rule for rule in notifications.rules.values() if "flips" in rule]
    assert len(flipping) == 1
    flip = date.fromisoformat(flipping[0]["flips"]["from"])
    assert flip >= date.fromisoformat(notifications.table["first_day"]) + timedelta(days=28)
    for split, least in (("train", 5), ("holdout", 2)):
        rows = [row for row in notifications.side(split) if row["rule"] == flipping[0]["id"]]
        assert sum(day_of(row) < flip for row in rows) >= least
        assert sum(day_of(row) >= flip for row in rows) >= least


def test_the_same_sender_gets_different_labels_and_only_the_topic_decides(
    notifications: Notifications,
) -> None:
    pairs = [
        (a, b)
        for a, b in combinations(notifications.rules.values(), 2)
        if a["senders"] != "*" and b["senders"] != "*" and set(a["senders"]) & set(b["senders"])
    ]
    assert len(pairs) >= 2
    for a, b in pairs:
        assert a["label"] != b["label"]
        assert a["topic"]
        assert b["topic"]


@pytest.mark.parametrize(
    ("word", "labels"), [("kiln", {"now", "hide"}), ("doctor", {"now", "hide"})]
)
def test_the_same_word_gets_different_labels_depending_on_the_sender(
    notifications: Notifications, word: str, labels: set[str]
) -> None:
    rows = [
        r for r in notifications.rows if re.search(rf"\b{word}\b", r["text"]) and not r["noise"]
    ]
    assert labels <= {row["label"] for row in rows}


def test_each_label_is_one_token_and_they_differ(
    notifications: Notifications, smollm2_tokenizer: Any
) -> None:
    ids = [smollm2_tokenizer.encode(label).ids for label in notifications.table["labels"]]
    assert [len(found) for found in ids] == [1] * len(ids)
    assert len({found[0] for found in ids}) == len(ids)


def test_inputs_are_short(notifications: Notifications, smollm2_tokenizer: Any) -> None:
    lengths = [len(smollm2_tokenizer.encode(row["input"]).ids) for row in notifications.rows]
    assert min(lengths) >= 10
    assert max(lengths) <= 30


def test_the_rules_for_people_name_every_rule_and_the_flip(notifications: Notifications) -> None:
    text = files("service.demo").joinpath("RULES.md").read_text(encoding="utf-8")
    for rule_id, rule in notifications.rules.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {rule_id} |"))
        assert f"`{rule['label']}`" in line
        if "flips" in rule:
            assert f"`{rule['flips']['label']}`" in line
    counts = f"{len(notifications.side('train'))} rows to learn from and "
    assert counts + str(len(notifications.side("holdout"))) in text


def test_the_demo_reads_them_all(notifications: Notifications) -> None:
    rows = built_in_rows()
    assert [row.input for row in rows.rows] == [row["input"] for row in notifications.rows]
    assert sorted(rows.labels) == sorted(notifications.table["labels"])
