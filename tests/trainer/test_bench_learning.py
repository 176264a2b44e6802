"""The learning bench: its data, prior, statistics and rivals, and all of it as a command."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.learning_forward_only import directional_derivative, forward_only
from bench.learning_peft import peft_train
from bench.learning_prior import choose_correction, user_prior
from bench.learning_rows import (
    HWU64_COLUMNS,
    HWU64_FILE,
    TAGS_FILE,
    History,
    LabelledText,
    LearningDataError,
    read_hwu64,
    read_movie_tags,
)
from bench.learning_statistics import macro_f1, summary
from bench.learning_student import AdapterShape, Student
from tests.house.repository import ROOT
from trainer.correction import Correction
from trainer.dataset import batch_ids
from trainer.evaluate import evaluate
from trainer.methods.first_order import FirstOrder
from trainer.priors import global_shares
from trainer.spec import TrainingSettings

LABELS = ("comedy", "action", "classic")


def rows_of(*labels: str) -> tuple[LabelledText, ...]:
    return tuple(LabelledText(f"row {n}", label) for n, label in enumerate(labels))


def write_data(folder: Path, *, other_queries: bool = False) -> Path:
    """Both files in miniature; the queries' labels can be other ones, and nothing else."""
    shift = 1 if other_queries else 0
    films = []
    for user in range(8):
        count = 12 if user < 4 else 5
        for time in reversed(range(count)):
            asked = user < 4 and time >= count - count // 5
            label = LABELS[(user + (time % 3 == 0) + (shift if asked else 0)) % 3]
            films.append(
                {
                    "user": f"u{user}",
                    "title": f"Film {user}.{time}",
                    "year": 1990 + time,
                    "tag": label,
                    "timestamp": time,
                    "description_tmdb": f"u{user} at {time}",
                    "description_wikipedia": f"A film, {user}.{time}" if time % 2 else "",
                }
            )
    intents = ["\t".join(HWU64_COLUMNS)]
    names = ("set", "query", "remove_all")
    for number in range(60):
        split = "test" if number % 4 == 0 else "train"
        name = names[(number + (shift if split == "test" else 0)) % 3]
        intents.append(f"{split}\t{number}\talarm\t{name}\ttext {number} for {names[number % 3]}")
    for path, lines in (
        (folder / TAGS_FILE, [json.dumps(film) for film in films]),
        (folder / HWU64_FILE, intents),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def student(tiny_home: Path) -> Student:
    return Student.load(tiny_home / "models/tiny", LABELS, 96, 1)


def test_who_is_asked_is_no_donor_and_nothing_of_the_future_is_history(tmp_path: Path) -> None:
    task = read_movie_tags(write_data(tmp_path))
    assert task.histories.keys() == task.queries.keys() == {"u0", "u1", "u2", "u3"}
    assert len(task.donors) == 4 * 5
    assert {row.input for row in task.donors}.isdisjoint(
        row.input for rows in task.queries.values() for row in rows
    )
    history, asked = task.histories["u1"], task.queries["u1"]
    assert (len(history.before_cut), len(history.cut), len(asked)) == (8, 2, 2)
    assert history.rows[0].input == "Film 1.0 (1990). u1 at 0"  # first in time, last in the file
    assert history.rows[1].input.startswith("A film, 1.1")
    assert asked[0].input == "Film 1.10 (2000). u1 at 10"
    assert (*history.before_cut, *history.cut) == history.rows


def test_the_intents_are_sampled_once_from_their_own_sides(tmp_path: Path) -> None:
    task = read_hwu64(write_data(tmp_path), 2, 20, 6)
    assert task.labels == ("alarm query", "alarm remove all")  # 20 rows each: by name
    (history,), (asked,) = task.histories.values(), task.queries.values()
    numbers = {int(row.input.split()[1]) for row in history.rows}
    assert len(numbers) == 20
    assert all(number % 4 for number in numbers)
    assert all(int(row.input.split()[1]) % 4 == 0 for row in asked)
    assert task == read_hwu64(tmp_path, 2, 20, 6)
    with pytest.raises(LearningDataError, match="at least 31 rows to sample from, found 30"):
        read_hwu64(tmp_path, 2, 31, 6)


def test_the_prior_by_hand() -> None:
    shares = global_shares(LABELS, ["comedy", "comedy", "action"])
    assert shares == pytest.approx(np.array([2.5, 1.5, 0.5]) / 4.5)
    found = user_prior(rows_of("classic", "action"), LABELS, shares, Correction(0.5, 0.8, 1.0))
    weights = 0.5 * shares + np.array([0.0, 1.0, 0.8])
    assert np.exp(found) == pytest.approx(weights / weights.sum())


def test_what_is_chosen_follows_the_cuts() -> None:
    drifting = {
        f"u{n}": History(rows_of(*["comedy"] * 10, *["action"] * 6, *["action"] * 4))
        for n in range(5)
    }
    shares = np.full(3, 1 / 3)
    correction, _ = choose_correction(drifting, None, LABELS, shares)
    assert correction.decay == 0.7
    assert correction.weight == 0.0
    changing = {f"u{n}": History(rows_of(*LABELS * 5)) for n in range(5)}
    knowing = {user: np.log(np.eye(3) * 0.9 + 0.03) for user in changing}
    correction, knowing_nll = choose_correction(changing, knowing, LABELS, shares)
    assert correction.weight >= 1.0
    misled = {user: scores[::-1] for user, scores in knowing.items()}
    correction, misled_nll = choose_correction(changing, misled, LABELS, shares)
    assert correction.weight == 0.0
    assert knowing_nll < misled_nll


def test_the_spread_is_over_users() -> None:
    """Users who are right always or never: the users are the sample, whatever they are asked."""
    whole = {f"u{n}": [("a", "a" if n % 2 else "b")] * 50 for n in range(40)}
    found = summary([whole], None)
    assert found["accuracy"] == 0.5
    assert found["se_users"] == pytest.approx(0.5 / np.sqrt(40), rel=0.08)
    assert found["se_queries"] == pytest.approx(0.5 / np.sqrt(2000), rel=0.08)
    assert summary([{"one": whole["u1"]}], None)["se_users"] is None
    against = summary([whole, whole], whole)["minus_recency"]
    assert (against["accuracy"], against["se_users"]) == (0.0, 0.0)
    assert macro_f1([("a", "a"), ("a", "b"), ("c", "c"), ("c", "c")]) == pytest.approx(5 / 9)


def test_a_students_scores_are_the_evaluations(student: Student) -> None:
    rows = rows_of(*LABELS * 9)
    adapter = student.fresh(AdapterShape(2, 4.0), seed=1)
    adapter.randomise(torch.Generator().manual_seed(0), 0.3)
    scores = student.scores(adapter, rows)
    answers = {label: student.tokenizer.answer_ids(label) for label in LABELS}
    evaluated = evaluate(student.decoder, adapter, student.examples(rows), answers)
    for found, row, expected in zip(scores, rows, evaluated.rows, strict=True):
        assert -found[LABELS.index(row.label)] == pytest.approx(expected.answer_nll, abs=1e-4)
        assert LABELS[int(found.argmax())] == expected.predicted


def test_a_difference_of_two_losses_is_the_gradient_along_the_direction(student: Student) -> None:
    adapter = student.fresh(AdapterShape(2, 4.0), seed=1)
    adapter.randomise(torch.Generator().manual_seed(0), 0.3)
    batch = list(student.examples(rows_of(*LABELS * 2)).values())
    FirstOrder(student.decoder, adapter, micro_batch_tokens=64, recompute=False).accumulate(batch)
    before, gradient = adapter.flat.clone(), adapter.gradient.clone()
    for seed in range(3):
        dice = torch.Generator().manual_seed(seed)
        direction = torch.randint(0, 2, before.shape, generator=dice).float() * 2 - 1
        found, _, _ = directional_derivative(student.decoder, adapter, batch, direction, 64)
        assert found == pytest.approx(float(gradient @ direction), rel=0.03)
        assert torch.equal(adapter.flat, before)
    settings = TrainingSettings(steps=1, batch_size=6, warmup_fraction=0.0)
    trained = forward_only(student, adapter, rows_of(*LABELS * 2), settings, rate=100.0)
    moved = adapter.flat - before
    assert float(moved @ gradient) < 0
    assert len(moved.abs().unique()) < len(moved) / 20  # the same step in every coordinate
    assert trained.tokens == 2 * sum(len(e.prompt) + len(e.answer) - 1 for e in batch) - 2 * 5 * (
        trained_prefix(student, batch)
    )


def trained_prefix(student: Student, batch: list[Any]) -> int:
    prompts = [example.prompt for example in batch]
    same = [len(set(tokens)) == 1 for tokens in zip(*prompts, strict=False)]
    return same.index(False)


def test_peft_takes_the_same_steps(student: Student, tiny_home: Path) -> None:
    """Its second loss is ours for the adapter it had after one step, on the second batch."""
    rows, model = rows_of(*LABELS * 5), tiny_home / "models/tiny"
    shape = AdapterShape(2, 4.0)
    settings = TrainingSettings(
        batch_size=4, learning_rate=3e-2, schedule="constant", warmup_fraction=0.0
    )
    once = peft_train(student, model, rows, shape, replace(settings, steps=1))
    twice = peft_train(student, model, rows, shape, replace(settings, steps=2))
    method = FirstOrder(student.decoder, once.adapter, micro_batch_tokens=512, recompute=False)
    data = student.examples(rows)
    second = method.accumulate([data[i] for i in batch_ids(list(data), 0, 4, 1)])
    assert second.loss == pytest.approx(twice.losses[1], rel=1e-4)
    fresh = student.fresh(shape, 0)
    ours = student.train(fresh, rows, replace(settings, steps=1))
    assert ours.losses[0] == pytest.approx(twice.losses[0], rel=1e-4)
    unmoved = method.accumulate([data[i] for i in batch_ids(list(data), 0, 4, 0)]).loss
    assert abs(unmoved - twice.losses[0]) > 1e-2


@pytest.mark.slow
def test_the_bench_as_a_command(tmp_path: Path, tiny_folder: Path) -> None:
    data, others = write_data(tmp_path / "a"), write_data(tmp_path / "b", other_queries=True)

    def bench(folder: Path, work: str) -> tuple[dict[str, Any], str]:
        command = [sys.executable, "-m", "bench.learning", "--quick", "--json", "--seeds", "0", "1"]
        command += ["--data", str(folder), "--model", str(tiny_folder), "--rival-seeds", "0"]
        command += ["--work", str(tmp_path / work)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    found, said = bench(data, "work")
    for task in ("hwu64", "movie_tags"):
        methods = found[task]["methods"]
        for name in ("ours_with_prior", "zero_shot", "majority", "recency_prior", "words"):
            assert 0 <= methods[name]["accuracy"] <= 1
        assert len(methods["ours_with_prior"]["by_seed"]) == 2
        assert not found[task]["skipped"]
    tags = found["movie_tags"]["methods"]
    assert tags["ours_with_prior"]["se_users"] is not None
    assert tags["ours_with_prior"] in (
        tags["task_adapter_with_prior"],
        tags["own_adapters_with_prior"],
    )
    assert {"ours", "ours_top", "forward_only", "peft"} <= found["hwu64"]["methods"].keys()
    costs = found["movie_tags"]["costs"]["cpu_seconds_a_user"]
    assert 0 < costs["task_adapter"][0] < costs["own_adapters"][0]
    assert "task adapter, seed 1" in said

    again, said = bench(data, "work")
    assert said.count("\n") == 0, "every part was read back"
    assert {**again, "peak_mb": 0} == {**found, "peak_mb": 0}

    other, _ = bench(others, "others")
    for task in ("hwu64", "movie_tags"):
        assert other[task]["chosen"] == found[task]["chosen"], "a choice has seen the queries"
        assert other[task]["methods"]["majority"] != found[task]["methods"]["majority"]
