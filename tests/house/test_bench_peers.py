"""`bench.peers` on a tiny model: real contestants, and what would make a race worth nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from bench import peers, peers_race
from bench.peers_base import prepare_base
from bench.peers_flop import step_flop
from bench.peers_ours import Ours
from bench.peers_report import GOALS
from bench.peers_result import Race, Record
from bench.peers_settings import Setting, padding_factor, settings, sorted_batches
from bench.peers_task import IGNORED, Example, Task, padded
from trainer.models.tiny import write_tiny_model

VOCABULARY = 49_152


@pytest.mark.slow
def test_all_train_alike_and_one_that_computes_something_else_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cheat is real: PEFT at its best gets an adapter that adds twice as much."""

    class Cheated(peers_race.Child):
        def __init__(self, name: str, task: Path, log: Path, python: str) -> None:
            if name == "peft_best":
                honest = Task.read(task)
                task = task.with_suffix(".cheat")
                dataclasses.replace(honest, alpha=2 * honest.alpha).write(task)
            super().__init__(name, task, log, python)

    monkeypatch.setattr(peers_race, "Child", Cheated)
    given = ["--quick", "--json", "--threads", "1", "--folder", str(tmp_path)]
    assert peers.main(given) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["losses_agree"] is False
    assert len(found["broken"]) == 1
    assert found["broken"][0].startswith("realistic_sorted_top: peft_best")
    assert found["broken"][0] in printed.err

    realistic = found["settings"]["realistic"]["contestants"]
    assert realistic.keys() == {"ours", "peft_as_used"}
    for record in realistic.values():
        assert len(record["seconds"]) == len(record["losses"]) == peers.QUICK_STEPS
        assert all(seconds > 0 for seconds in record["seconds"])
        assert record["peak_mb"]["from_start"] >= record["peak_mb"]["training"] > 100
    assert found["settings"]["realistic"]["largest_loss_difference"]["peft_as_used"] < 1e-4
    assert found["settings"]["realistic"]["loss_fell_by"] > 0.01
    top = found["settings"]["realistic_sorted_top"]
    assert top["largest_loss_difference"]["ours"] < 1e-4, "read back or not, the same is computed"
    assert top["layers"] == 1
    assert found["ratios"]["realistic_vs_peft_as_used"] > 0
    assert found["peak_mb"].keys() == {"ours_realistic", "peft_as_used_realistic"}
    assert found["goals"].keys() == GOALS.keys()
    assert found["goals"]["realistic_vs_peft_as_used"]["met"] in (True, False)
    assert found["goals"]["full_4x256"] == {"goal": ">= 1.3", "found": None, "met": None}
    assert not list(tmp_path.iterdir()), "what a race writes is gone afterwards"


@pytest.mark.parametrize(
    ("off_by", "code"), [(0.0009, 0), (0.0011, 1), (-0.0011, 1), (math.nan, 1)]
)
def test_the_exit_code_tells_whether_losses_agree(
    off_by: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def race(
        setting: Setting, task: Path, pythons: Mapping[str, str], logs: Path
    ) -> tuple[Race, dict[str, str]]:
        return Race(
            setting,
            {
                name: Record(
                    seconds=[9.0, 1.0, 1.0],
                    losses=[3.0, 3.0, 2.0 + off_by * (name == "peft_as_used")],
                    peak_mb={"from_start": 500.0, "training": 400.0},
                )
                for name in pythons
            },
        ), {}

    monkeypatch.setattr(peers, "race", race)
    assert peers.main(["--quick", "--json", "--folder", str(tmp_path)]) == code


def test_a_curve_that_does_not_move_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def race(
        setting: Setting, task: Path, pythons: Mapping[str, str], logs: Path
    ) -> tuple[Race, dict[str, str]]:
        record = Record(
            seconds=[1.0] * 3, losses=[3.0] * 3, peak_mb={"from_start": 1.0, "training": 1.0}
        )
        return Race(setting, dict.fromkeys(pythons, record)), {}

    monkeypatch.setattr(peers, "race", race)
    assert peers.main(["--quick", "--json", "--folder", str(tmp_path)]) == 1
    assert "ours doesn't learn" in capsys.readouterr().err


def test_a_ratio_is_of_the_same_round_and_leaves_the_warm_up_out() -> None:
    setting = Setting("one", (), ("ours", "peer"), warm_up=2)
    slow = Record(seconds=[100.0, 100.0, 8.0, 4.0, 60.0])
    ours = Record(seconds=[1.0, 1.0, 2.0, 1.0, 6.0])
    race = Race(setting, {"peer": slow, "ours": ours})
    assert race.ratio("peer") == 4.0
    assert race.seconds("peer") == 8.0
    assert race.ratio("nobody") is None


def test_personal_examples_are_as_long_as_they_are_said_to_be() -> None:
    every = {one.name: one for one in settings(VOCABULARY, 8, 5, 8)}
    batches = every["realistic"].batches
    lengths = [len(example.ids) for batch in batches for example in batch]
    assert 60 < sum(lengths) / len(lengths) < 84
    shared = {example.prompt[:48] for batch in batches for example in batch}
    assert len(shared) == 1
    assert {len(example.answer) for batch in batches for example in batch} == {1, 2, 3, 4, 5}
    assert all(len(batch) == 8 for batch in batches)
    assert len(set(batches)) == 6
    by_length = sorted_batches(batches[:6])
    assert sorted(e.ids for b in by_length for e in b) == sorted(
        e.ids for b in batches[:6] for e in b
    )
    assert padding_factor(by_length) < 1.1 < 1.3 < padding_factor(batches)
    for name, (batch, length, labels) in {
        "short_4x64": (4, 64, 4),
        "full_4x256": (4, 256, 255),
    }.items():
        for examples in every[name].batches:
            assert [(len(e.ids), len(e.answer)) for e in examples] == [(length, labels)] * batch
        assert every[name].batches[0] == every[name].batches[2] != every[name].batches[1]


def test_padding_carries_no_loss() -> None:
    ids, labels = padded([Example((5, 6), (7,)), Example((8,), ())])
    assert ids == [[5, 6, 7], [8, 0, 0]]
    assert labels == [[IGNORED, IGNORED, 7], [IGNORED] * 3]


class Multiplications(TorchDispatchMode):
    """Counts the operations of products of two matrices; those of attention have three axes."""

    flop = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if (name := operation.overloadpacket.__name__) in ("mm", "addmm", "addmm_"):
            left, right = args[:2] if name == "mm" else args[1:3]
            self.flop += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return operation(*args, **(kwargs or {}))


def test_no_more_operations_are_counted_than_a_step_needs(tmp_path: Path) -> None:
    """Ours, which may do little more than is needed, is what the count is compared with."""
    write_tiny_model(tmp_path / "tiny", layers=3)
    base = prepare_base(tmp_path, str(tmp_path / "tiny"), ("fp16",))
    batch = (Example((5, 6, 7, 8), (9, 10)), Example(tuple(range(20, 50)), (11,)))
    task = Task(base.folder, base.weights, base.adapter, 8, 16.0, None, 1e-3, 1.0, 1, (batch,))
    ours = Ours(task, recompute=False)
    with Multiplications() as counted:
        ours.step(0)
    flop = step_flop(base.config, batch)
    assert flop.total - flop.attention <= counted.flop <= 1.05 * (flop.total - flop.attention)
