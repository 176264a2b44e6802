"""What GET /v1/device says of the engine: what runs use now and why, to whom it may be told."""

import json
import platform
from typing import Any

import pytest

from api_schemas.engine import Engine
from service.engine_answer import engine_answer
from service.engine_files import Check, Demotion, Verdict
from service.settings import Settings
from storage.clock import now_ms
from storage.tables import Run
from tests.service.apps import pair
from tests.service.daemon import Daemon

CAUSE = "SIGSEGV at step 12 while qnn (form table) was in use"
REPORT: dict[str, Any] = {
    "requested": "auto",
    "engine": "qnn",
    "form": "table",
    "why": "a Snapdragon NPU was found",
    "device": "Hexagon",
    "soc": "SM8650",
    "precision": {
        "formats": {"int4_min": {"matrices": 2, "parameters": 1000, "bytes": 625}},
        "bytes_per_parameter": 0.625,
    },
    "fallbacks": [],
    "given_up": None,
}
LATER = "2199-01-01T00:00:00Z"
EARLIER = "2001-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def phone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def run(number: int = 7, **changes: Any) -> Run:
    return Run(id=number, adapter_id=1, engine=REPORT | changes, worked_at=now_ms())


def demotion(**changes: Any) -> Demotion:
    fields = {"engine": "qnn", "fingerprint": "sha256:a", "cause": CAUSE, "run": 7, "step": 12}
    return Demotion.model_validate(fields | {"at": "2026-11-30T04:00:00.123Z"} | changes)


def verdict(*, passed: bool = True, at: str | None = LATER, **changes: Any) -> Verdict:
    cause = None if passed else "the library libQnnHtp.so is missing"
    check = Check(name="qnn (form table)", engine="qnn", form="table", passed=passed, cause=cause)
    check = check.model_copy(update={"device": "Hexagon", "soc": "SM8650"})
    other = Check(name="torch_cpu", engine="torch_cpu", form="codes", passed=True)
    engine, form = ("qnn", "table") if passed else ("torch_cpu", "codes")
    fields = {"fingerprint": "sha256:a", "checks": (check, other), "engine": engine, "form": form}
    why = "a Snapdragon NPU was found" if passed else f"qnn can't be used: {cause}"
    return Verdict.model_validate(fields | {"at": at, "why": why} | changes)


def answer(
    latest: Run | None = None,
    own: Run | None = None,
    found: Verdict | None = None,
    demotions: tuple[Demotion, ...] = (),
    sees: tuple[int, ...] = (),
    **settings: Any,
) -> Engine:
    return engine_answer(
        Settings(**settings),
        latest=latest,
        own=own,
        verdict=found,
        demotions=demotions,
        may_see=lambda run_id: run_id in sees,
    )


def test_before_any_run_and_any_test_nothing_is_known() -> None:
    found = answer()
    assert (found.name, found.form, found.precision, found.doctor) == (None, None, None, None)
    assert "lorad doctor" in found.why
    named = answer(engine="qnn", soc="SM8750")
    assert (named.name, named.why, named.soc) == ("qnn", "asked for by name", "SM8750")


def test_a_machine_that_is_no_phone_uses_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    for found in (answer(), answer(found=verdict()), answer(demotions=(demotion(),))):
        assert (found.name, found.form, found.fallback) == ("torch_cpu", "codes", None)
        assert found.why == "this machine is x86_64, not a phone's ARM"
    assert answer(found=verdict(), engine="qnn").name == "qnn"


def test_the_latest_run_says_what_is_used() -> None:
    found = answer(run(), run())
    assert (found.name, found.form, found.device, found.soc) == (
        "qnn",
        "table",
        "Hexagon",
        "SM8650",
    )
    assert (found.why, found.fallback, found.run) == ("a Snapdragon NPU was found", None, 7)
    assert found.precision is not None
    assert found.precision.formats["int4_min"].bytes == 625
    assert found.report == REPORT
    assert answer(run(), run(), verdict(passed=False, at=EARLIER)).name == "qnn"


def test_a_run_with_other_settings_says_nothing_of_those_to_come() -> None:
    found = answer(run(requested="torch_cpu", engine="torch_cpu"), engine="qnn")
    assert (found.name, found.why, found.precision) == ("qnn", "asked for by name", None)


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        ({"fallbacks": [{"engine": "qnn", "cause": "no room", "matrix": None}]}, "no room"),
        ({"given_up": {"after_products": 3, "cause": "three in a row"}}, "three in a row"),
        ({"fallbacks": [7, {"cause": 7}], "given_up": 7}, None),
        ({"fallbacks": None, "precision": 7, "soc": {"part": "SM8650"}}, None),
    ],
)
def test_a_fallback_is_told_with_its_cause(report: dict[str, Any], cause: str | None) -> None:
    found = answer(run(**report))
    assert (found.fallback, found.soc) == (cause, "SM8650")


def test_the_doctor_is_believed_if_it_is_newer() -> None:
    older = run(engine="torch_cpu", form="codes", why="qnn was given up")
    found = answer(older, older, verdict())
    assert (found.name, found.form, found.soc) == ("qnn", "table", "SM8650")
    failed = answer(None, None, verdict(passed=False))
    assert (failed.name, failed.form) == ("torch_cpu", "codes")
    assert failed.fallback == "the library libQnnHtp.so is missing"
    assert failed.doctor is not None
    assert failed.doctor.age_seconds == 0
    assert failed.doctor.checks[0].cause == failed.fallback
    odd = answer(run(), None, verdict(passed=False, at="yesterday"))
    assert (odd.name, odd.doctor and odd.doctor.at) == ("qnn", None)


@pytest.mark.parametrize("known", ["run", "doctor", "nothing"])
def test_what_was_given_up_is_not_used_any_more(known: str) -> None:
    latest = run() if known == "run" else None
    found = answer(
        latest, latest, verdict(at=EARLIER) if known == "doctor" else None, (demotion(),)
    )
    assert (found.name, found.form, found.fallback) == ("torch_cpu", "codes", CAUSE)
    assert CAUSE in found.why
    assert "lorad doctor --again" in found.why
    assert found.demotions[0].in_force


def test_what_was_given_up_on_another_device_is_history() -> None:
    old, new = demotion(fingerprint="sha256:old"), demotion(engine="another")
    found = answer(run(), None, verdict(), (old, new))
    assert found.name == "qnn"
    assert [(one.engine, one.in_force) for one in found.demotions] == [
        ("another", True),
        ("qnn", False),
    ]


def test_an_engine_asked_for_by_name_that_is_not_the_npus_is_used_as_ever() -> None:
    found = answer(None, None, verdict(passed=False), (demotion(),), engine="onnx_cpu")
    assert (found.name, found.fallback) == ("onnx_cpu", None)


def test_a_run_of_somebody_else_has_no_number() -> None:
    demotions = (demotion(run=7), demotion(run=8), demotion(run=None))
    assert [one.run for one in answer(demotions=demotions, sees=(8,)).demotions] == [None, 8, None]


def test_each_client_is_told_what_it_may_see(ready: Daemon) -> None:
    run_id = ready.train()
    ready.wait_until_ended(run_id)
    folder = ready.home / "engine"
    folder.mkdir(exist_ok=True)
    mine = demotion(run=run_id).model_dump()
    (folder / "demotions.json").write_text(json.dumps({"demotions": [mine]}))
    (folder / "doctor.json").write_text(verdict(passed=False, at=EARLIER).model_dump_json())
    try:
        owner = ready.http.get("/v1/device").json()["engine"]
        assert [one["run"] for one in owner["demotions"]] == [run_id]
        assert owner["demotions"][0]["at"] == "2026-11-30T04:00:00.123Z"
        assert owner["doctor"]["age_seconds"] > 1e8
        assert [check["passed"] for check in owner["doctor"]["checks"]] == [False, True]
        with pair(ready, "engine-app") as app:
            other = app.http.get("/v1/device").json()["engine"]
            for_it = ready.http.get("/v1/device?client=engine-app").json()["engine"]
    finally:
        (folder / "demotions.json").unlink()
        (folder / "doctor.json").unlink()
    assert [one["run"] for one in other["demotions"]] == [None]
    assert other["demotions"][0]["cause"] == CAUSE
    assert (other["run"], other["report"], other["precision"]) == (None, None, None)
    assert "stand_in" not in json.dumps(other)
    assert (for_it["run"], for_it["name"]) == (None, "stand_in")
