"""What a user's own file may look like, and how it is refused when it can't be used."""

import json
from collections import Counter
from pathlib import Path

import pytest

from service.demo.rows import Row, RowsError, built_in_rows, read_rows, subset


def lines(count: int, start: int = 0) -> list[str]:
    return [
        json.dumps({"input": f"text {i}", "label": "ab"[i % 2]})
        for i in range(start, start + count)
    ]


def write(tmp_path: Path, name: str, content: list[str] | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else "\n".join(content).encode())
    return path


def test_without_a_split_the_end_of_the_file_is_held_out_and_said_so(tmp_path: Path) -> None:
    found = read_rows(write(tmp_path, "mine.jsonl", lines(200)))
    assert [row.split for row in found.rows] == ["train"] * 150 + ["holdout"] * 50
    assert found.labels == ["a", "b"]
    assert any("last 50 rows" in note for note in found.notes)


def test_at_least_thirty_rows_are_held_out(tmp_path: Path) -> None:
    assert len(read_rows(write(tmp_path, "mine.jsonl", lines(60))).holdout) == 30


def test_the_share_held_out_can_be_chosen(tmp_path: Path) -> None:
    found = read_rows(write(tmp_path, "mine.jsonl", lines(200)), holdout_share=0.4)
    assert len(found.holdout) == 80


def test_a_given_split_is_kept_and_other_fields_are_ignored(tmp_path: Path) -> None:
    content = [
        json.dumps({"input": f"t {i}", "label": "xy"[i % 2], "split": s, "at": 3})
        for i in range(50)
        for s in (["holdout"] if i % 5 == 0 else ["train"])
    ]
    found = read_rows(write(tmp_path, "mine.jsonl", content))
    assert found.rows[0] == Row("t 0", "x", "holdout")
    assert len(found.holdout) == 10
    assert found.notes == ()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tsv_with_columns_in_any_order_quotes_as_they_are(
    tmp_path: Path, newline: str, mark: str
) -> None:
    rows = ["label\tsplit\tinput"]
    rows += [f'{"ab"[i % 2]}\t{"holdout" if i > 40 else "train"}\tsay "hi" {i}' for i in range(60)]
    found = read_rows(write(tmp_path, "mine.tsv", (mark + newline.join(rows)).encode()))
    assert found.rows[0] == Row('say "hi" 0', "a", "train")
    assert len(found.holdout) == 19


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    content = [*lines(50), json.dumps({"input": "one\u2028two", "label": "a"}, ensure_ascii=False)]
    assert read_rows(write(tmp_path, "mine.jsonl", content)).rows[-1].input == "one\u2028two"


def test_held_out_rows_that_repeat_a_training_row_are_left_out(tmp_path: Path) -> None:
    content = [*lines(100), json.dumps({"input": "  TEXT   3 ", "label": "b"})]
    found = read_rows(write(tmp_path, "mine.jsonl", content))
    assert len(found.holdout) == 29
    assert any(note.startswith("1 held-out") for note in found.notes)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ('{"label": "a"}', "input must be text, found nothing"),
        ('{"input": "t", "label": 3}', "label must be text, found int"),
        ('{"input": " ", "label": "a"}', "input is empty"),
        ('{"input": "t", "label": ""}', "label is empty"),
        ('{"input": "\\ud800", "label": "a"}', "half a surrogate"),
        ('{"input": "\\u0000", "label": "a"}', "NUL"),
        ('{"input": "t", "label": "a", "split": "test"}', "split must be"),
        ('{"input": "t", "label": "a", "split": ["train"]}', "split must be"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, bad: str, said: str) -> None:
    content = [*lines(44), "", bad, *lines(10, 44)]
    with pytest.raises(RowsError) as caught:
        read_rows(write(tmp_path, "mine.jsonl", content))
    assert "line 46: " in str(caught.value)
    assert said in str(caught.value)


def test_many_bad_lines_are_counted_not_listed(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match=r"line 10: .*\n  and 40 more"):
        read_rows(write(tmp_path, "mine.jsonl", ["x"] * 50))


def test_bytes_that_are_no_text_are_named_by_line(tmp_path: Path) -> None:
    content = "\n".join(lines(50)).encode() + b'\n{"input": "\xff"}'
    with pytest.raises(RowsError, match="line 51: not UTF-8 at byte 12"):
        read_rows(write(tmp_path, "mine.jsonl", content))


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("text\tlabel", "t\ta", "line 1: .*no input"),
        ("a\tb", "t\ta", "no input and no label"),
        ("input\tlabel\tlabel", "t\ta\ta", "occurs twice"),
        ("input\tlabel", "t\ta\tc", "line 2: expected 2 columns, found 3"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, header: str, row: str, said: str
) -> None:
    with pytest.raises(RowsError, match=said):
        read_rows(write(tmp_path, "mine.tsv", [header, *[row] * 50]))


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="39 rows, expected at least 40"):
        read_rows(write(tmp_path, "mine.jsonl", lines(39)))


def test_one_label_is_refused(tmp_path: Path) -> None:
    content = [json.dumps({"input": f"t {i}", "label": "a"}) for i in range(50)]
    with pytest.raises(RowsError, match=r"one label only \(a\)"):
        read_rows(write(tmp_path, "mine.jsonl", content))


def test_a_training_side_with_one_label_is_refused(tmp_path: Path) -> None:
    content = [json.dumps({"input": f"t {i}", "label": "ab"[i >= 60]}) for i in range(80)]
    with pytest.raises(RowsError, match="training side"):
        read_rows(write(tmp_path, "mine.jsonl", content))


def test_a_split_on_some_rows_only_is_refused(tmp_path: Path) -> None:
    content = [*lines(50), json.dumps({"input": "t", "label": "a", "split": "train"})]
    with pytest.raises(RowsError, match="on 1 of 51 rows"):
        read_rows(write(tmp_path, "mine.jsonl", content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match=r"nowhere\.jsonl"):
        read_rows(tmp_path / "nowhere.jsonl")


def test_a_subset_keeps_the_order_and_spreads_over_the_whole_time(tmp_path: Path) -> None:
    found = subset(read_rows(write(tmp_path, "mine.jsonl", lines(200))), 48, 16)
    assert (len(found.train), len(found.holdout)) == (48, 16)
    numbers = [int(row.input.split()[1]) for row in found.rows]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert numbers[47] >= 140


def test_a_subset_keeps_each_labels_share() -> None:
    shipped = built_in_rows()
    small = subset(shipped, 48, 16)
    for whole, part in ((shipped.train, small.train), (shipped.holdout, small.holdout)):
        shares = Counter(row.label for row in part)
        for label, count in Counter(row.label for row in whole).items():
            assert abs(shares[label] - count * len(part) / len(whole)) <= 1
