"""Which engine a worker may open, and what it leaves on the disk while it has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import npu.engine_choice
import npu.engine_guard
from npu.demotions import Demotion, add_demotion, find_demotion, read_demotions
from npu.engine_guard import EngineGuard
from npu.engine_mark import EngineMark, read_mark, write_mark
from npu.engine_options import EngineOptions
from npu.errors import EngineError
from npu.fingerprint import fingerprint
from npu.htp import SOCS, Snapdragon
from npu.verdict import Check, judge, read_verdict, write_verdict

HERE = fingerprint()
Tests = dict[str, Check]


@pytest.fixture
def tests(monkeypatch: pytest.MonkeyPatch) -> Tests:
    """In the place of the children: what the self-test of each form says; removed once asked."""
    ends: Tests = {}

    def examine(engine: Any, form: str, **_: Any) -> Check:
        return ends.pop(form)

    monkeypatch.setattr(npu.engine_guard, "examine", examine)
    return ends


def check(form: str, *, passed: bool = True, again: bool = False) -> Check:
    return Check("qnn", form, passed, None if passed else f"{form} is broken", "none", again)


def known(folder: Path, *checks: Check) -> None:
    write_verdict(folder, judge(HERE, "qnn", "asked for", checks))


def leave_mark(folder: Path, **fields: Any) -> None:
    mark = EngineMark("qnn", "table", "opening", 6, 123, HERE, 0)
    write_mark(folder, replace(mark, **fields))


def test_a_first_time_is_tested_and_the_verdict_kept(tmp_path: Path, tests: Tests) -> None:
    told: list[str] = []
    guard = EngineGuard(tmp_path, 7, testing=lambda: told.append("testing"))
    tests["table"] = check("table")
    choice = guard.choose("qnn", EngineOptions())
    assert (choice.engine, choice.form, choice.refused) == ("qnn", "auto", None)
    assert told == ["testing"]
    assert guard.choose("qnn", EngineOptions()) is choice
    # The next worker needs no test: `tests` is empty and would raise.
    assert EngineGuard(tmp_path, 8).choose("qnn", EngineOptions()).engine == "qnn"


def test_a_form_that_crashes_leaves_the_other(tmp_path: Path, tests: Tests) -> None:
    tests |= {"table": check("table", passed=False), "inputs": check("inputs")}
    for run in (7, 8):
        choice = EngineGuard(tmp_path, run).choose("qnn", EngineOptions())
        assert (choice.engine, choice.form) == ("qnn", "inputs")
        assert choice.form_why == "the form table can't be used: table is broken"
    assert read_demotions(tmp_path) == []
    refused = EngineGuard(tmp_path, 9).choose("qnn", EngineOptions(form="table"))
    assert (refused.engine, refused.refused) == ("torch_cpu", "qnn can't be used: table is broken")


def test_a_form_asked_for_by_name_is_the_only_one_tested(tmp_path: Path, tests: Tests) -> None:
    tests["inputs"] = check("inputs")
    choice = EngineGuard(tmp_path, 7).choose("qnn", EngineOptions(form="inputs"))
    assert (choice.engine, choice.form, choice.form_why) == ("qnn", "inputs", None)
    tests["table"] = check("table")
    EngineGuard(tmp_path, 8).choose("qnn", EngineOptions())
    verdict = read_verdict(tmp_path, HERE)
    assert verdict is not None
    assert {c.form for c in verdict.checks} == {"inputs", "table"}, "neither test was in vain"


def test_an_engine_of_which_no_form_passes_is_given_up(tmp_path: Path, tests: Tests) -> None:
    tests |= {form: check(form, passed=False) for form in ("table", "inputs")}
    choice = EngineGuard(tmp_path, 7).choose("qnn", EngineOptions())
    assert (choice.engine, choice.why) == ("torch_cpu", "qnn can't be used: table is broken")
    (demotion,) = read_demotions(tmp_path)
    assert (demotion.engine, demotion.fingerprint, demotion.run) == ("qnn", HERE, 7)
    assert (demotion.cause, demotion.phase) == ("table is broken", "opening")
    again = EngineGuard(tmp_path, 8).choose("qnn", EngineOptions())
    assert again.engine == "torch_cpu"
    assert "given up on this device: table is broken" in again.why
    assert len(read_demotions(tmp_path)) == 1


def test_what_may_pass_gives_nothing_up(tmp_path: Path, tests: Tests) -> None:
    tests |= {form: check(form, passed=False, again=True) for form in ("table", "inputs")}
    assert EngineGuard(tmp_path, 7).choose("qnn", EngineOptions()).engine == "torch_cpu"
    assert read_demotions(tmp_path) == []
    tests["table"] = check("table")
    assert EngineGuard(tmp_path, 8).choose("qnn", EngineOptions()).engine == "qnn"


def test_a_demotion_counts_on_its_own_device_only(tmp_path: Path) -> None:
    known(tmp_path, check("table"))
    add_demotion(tmp_path, Demotion("qnn", "sha256:before-the-update", "SIGSEGV"))
    assert EngineGuard(tmp_path, 7).choose("qnn", EngineOptions()).engine == "qnn"
    add_demotion(tmp_path, Demotion("qnn", HERE, "SIGSEGV at step 3"))
    choice = EngineGuard(tmp_path, 7).choose("qnn", EngineOptions())
    assert choice.engine == "torch_cpu"
    assert choice.refused == choice.why
    assert "SIGSEGV at step 3" in choice.why


def test_a_verdict_for_one_snapdragon_is_none_for_another(tmp_path: Path, tests: Tests) -> None:
    known(tmp_path, check("table"))
    tests["table"] = check("table")
    EngineGuard(tmp_path, 7).choose("qnn", EngineOptions(soc=SOCS[0]))
    assert tests == {}, "tested"


@pytest.mark.parametrize("requested", ["auto", "torch_cpu", "onnx_cpu"])
def test_other_engines_are_not_guarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requested: Any
) -> None:
    leave_mark(tmp_path)
    monkeypatch.setattr(npu.engine_choice, "find_snapdragon", lambda: Snapdragon(False, "a laptop"))
    choice = EngineGuard(tmp_path, 7).choose(requested, EngineOptions())
    assert choice.engine == ("torch_cpu" if requested == "auto" else requested)
    assert choice.refused is None
    assert read_mark(tmp_path) is None, "a run without the NPU ends the row of deaths"


def test_the_mark_follows_the_phases(tmp_path: Path, tests: Tests) -> None:
    known(tmp_path, check("table"))
    guard = EngineGuard(tmp_path, 7)
    guard.choose("qnn", EngineOptions())
    assert read_mark(tmp_path) is None, "the choice runs nothing of the NPU"
    guard.opening("table")
    mark = read_mark(tmp_path)
    assert mark is not None
    assert (mark.engine, mark.form, mark.phase, mark.run) == ("qnn", "table", "opening", 7)
    assert (mark.fingerprint, mark.unexplained) == (HERE, 0)
    guard.opened("inputs")
    mark = read_mark(tmp_path)
    assert mark is not None
    assert (mark.form, mark.phase) == ("inputs", "first product")
    guard.first_product_done()
    written = (tmp_path / "in-use.json").stat().st_mtime_ns
    guard.first_product_done()
    mark = read_mark(tmp_path)
    assert mark is not None
    assert (mark.form, mark.phase) == ("inputs", "training")
    assert (tmp_path / "in-use.json").stat().st_mtime_ns == written, "once is enough"
    guard.close()
    assert read_mark(tmp_path) is None
    guard.first_product_done()
    assert read_mark(tmp_path) is None


def test_without_room_for_the_mark_the_engine_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path, check("table"))
    guard = EngineGuard(tmp_path, 7)
    guard.choose("qnn", EngineOptions())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npu.engine_guard, "write_mark", full)
    with pytest.raises(EngineError, match="No space left on device"):
        guard.opening("table")


def die(folder: Path, *moves: Callable[[EngineGuard], None]) -> str:
    """A worker that opens the engine, comes so far, and is gone; the engine it had."""
    guard = EngineGuard(folder, 7)
    engine = guard.choose("qnn", EngineOptions()).engine
    if engine == "qnn":
        guard.opening("table")
        for move in moves:
            move(guard)
    return engine


@pytest.mark.parametrize(
    ("moves", "where"),
    [
        ([], "while it was opened"),
        ([lambda guard: guard.opened("table")], "at its first product"),
    ],
)
def test_three_deaths_in_a_row_at_the_start_give_the_engine_up(
    tmp_path: Path, moves: list[Callable[[EngineGuard], None]], where: str
) -> None:
    known(tmp_path, check("table"))
    assert [die(tmp_path, *moves) for _ in range(3)] == ["qnn"] * 3
    assert read_demotions(tmp_path) == []
    assert die(tmp_path) == "torch_cpu"
    found = find_demotion(tmp_path, "qnn", HERE)
    assert found is not None
    assert found.cause == (
        f"the worker was killed 3 times in a row {where}, and nobody saw by what"
    )
    assert read_mark(tmp_path) is None
    assert die(tmp_path) == "torch_cpu"
    assert len(read_demotions(tmp_path)) == 1


def test_a_death_while_training_is_androids_and_ends_the_row(tmp_path: Path) -> None:
    known(tmp_path, check("table"))
    trained = [lambda guard: guard.opened("table"), lambda guard: guard.first_product_done()]
    for _ in range(4):
        assert die(tmp_path) == "qnn"
        assert die(tmp_path) == "qnn"
        assert die(tmp_path, *trained) == "qnn"
    assert read_demotions(tmp_path) == []


def test_an_orderly_end_ends_the_row(tmp_path: Path) -> None:
    known(tmp_path, check("table"))
    for _ in range(3):
        assert die(tmp_path) == "qnn"
        assert die(tmp_path) == "qnn"
        guard = EngineGuard(tmp_path, 7)
        guard.choose("qnn", EngineOptions())
        guard.opening("table")
        guard.close()
    assert read_demotions(tmp_path) == []


def test_deaths_under_another_system_do_not_count(tmp_path: Path) -> None:
    known(tmp_path, check("table"))
    leave_mark(tmp_path, fingerprint="sha256:before-the-update", unexplained=2)
    assert die(tmp_path) == "qnn"
    mark = read_mark(tmp_path)
    assert mark is not None
    assert mark.unexplained == 0
