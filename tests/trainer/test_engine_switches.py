"""What a run remembers of the engines that computed for it, also from an earlier lorad's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npu.htp import SOCS
from tests.trainer.workers import write_spec
from trainer.engine_switches import EngineSwitches
from trainer.evaluate import Evaluation, RowScore
from trainer.run_state import RunState
from trainer.spec import RunSpec, SpecError


def report(engine: str, why: str = "asked for by name", given_up: str | None = None) -> Any:
    cause = given_up and {"after_products": 9, "cause": given_up}
    return {"engine": engine, "why": why, "given_up": cause}


def test_the_same_engine_again_is_no_switch() -> None:
    switches = EngineSwitches()
    switches.resume((), "qnn", 4, report("qnn"))
    assert switches.look(5, report("qnn")) is None
    assert list(switches) == []


def test_an_engine_may_go_and_come_back() -> None:
    switches = EngineSwitches()
    assert switches.look(3, report("qnn", given_up="the DSP restarted")) == (
        "engine was qnn and is now torch_cpu"
    )
    assert switches.look(4, report("qnn", given_up="the DSP restarted")) is None, "told once"
    # The checkpoint says that qnn was opened; what computed last is what counts.
    switches.resume(list(switches), "qnn", 4, report("qnn", "a Snapdragon"))
    switches.resume(list(switches), "qnn", 8, report("torch_cpu", "qnn was given up"))
    assert list(switches) == [
        {"step": 3, "from": "qnn", "to": "torch_cpu", "why": "the DSP restarted"},
        {"step": 4, "from": "torch_cpu", "to": "qnn", "why": "a Snapdragon"},
        {"step": 8, "from": "qnn", "to": "torch_cpu", "why": "qnn was given up"},
    ]


def test_an_engine_given_up_again_after_it_came_back_is_told_again() -> None:
    switches = EngineSwitches()
    given_up = {"step": 3, "from": "qnn", "to": "torch_cpu", "why": "the DSP restarted"}
    switches.resume([given_up], "qnn", 4, report("qnn"))  # type: ignore[list-item]
    assert switches.look(5, report("qnn")) is None
    assert switches.look(6, report("qnn", given_up="again")) is not None
    assert [switch["step"] for switch in switches] == [3, 4, 6]


STATE = RunState(
    optimizer_steps=4,
    before=Evaluation([RowScore(7, "now", 1.5, 1.25, 3)]),
    active=None,
    engine=report("qnn"),
    seconds=3.5,
    environment={"engine": "qnn"},
    exact_resume_reason=None,
    changed_at={7: 1},
    forgotten={9: 2},
    engine_switches=({"step": 2, "from": "torch_cpu", "to": "qnn", "why": "a Snapdragon"},),
)


def test_a_checkpoint_remembers_the_switches() -> None:
    assert RunState.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE


def test_a_checkpoint_of_an_earlier_lorad_has_none() -> None:
    state = STATE.to_json()
    del state["engine_switches"]
    assert RunState.from_json(json.loads(json.dumps(state))).engine_switches == ()


def spec_with(home: Path, **fields: Any) -> RunSpec:
    folder = home / "models/tiny"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text('{"base_hash": "sha256:0"}')
    write_spec(home, 1)
    path = home / "runs/1/spec.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return RunSpec.load(path)


def test_a_spec_may_name_form_and_snapdragon(tmp_path: Path) -> None:
    options = spec_with(tmp_path, form="table", soc="SM8750").engine_options(tmp_path / "contexts")
    assert (options.form, options.soc, options.threads) == ("table", SOCS[2], 1)
    assert options.cache_dir == tmp_path / "contexts"


@pytest.mark.parametrize("fields", [{}, {"form": "auto", "soc": None}, {"soc": ""}])
def test_an_older_spec_leaves_both_to_the_device(tmp_path: Path, fields: dict[str, Any]) -> None:
    options = spec_with(tmp_path, **fields).engine_options(tmp_path)
    assert (options.form, options.soc) == ("auto", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"form": "tabel"}, "expected a form of auto, inputs, table, found 'tabel'"),
        ({"soc": "SM1"}, "expected a Snapdragon of SM8550, .*found 'SM1'"),
    ],
)
def test_others_are_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_with(tmp_path, **fields)
