"""One report for a run that several processes worked on."""

from typing import Any

from npu.ledger import Ledger
from trainer.environment import merge_engine_reports


def report(engine: str, *, given_up: bool = False) -> dict[str, Any]:
    ledger = Ledger(engine)
    ledger.repeat(engine, "m", "forward")
    ledger.fallback(engine, f"{engine} failed", "m", "forward")
    if given_up:
        ledger.give_up(f"{engine} failed")
    ledger.product("torch_cpu", "forward", 1.0)
    return {"engine": engine, **ledger.report()}


def test_counts_are_summed_and_what_happened_is_kept() -> None:
    merged = merge_engine_reports(report("qnn", given_up=True), report("onnx_cpu"))
    assert merged["engine"] == "onnx_cpu"
    assert merged["products"]["torch_cpu"]["forward"] == 2
    assert [event["engine"] for event in merged["fallbacks"]] == ["qnn", "onnx_cpu"]
    assert [event["engine"] for event in merged["repeats"]] == ["qnn", "onnx_cpu"]
    assert merged["given_up"] == {"after_products": 1, "cause": "qnn failed"}


def test_a_checkpoint_of_an_older_lorad_has_fewer_books() -> None:
    old = report("qnn")
    del old["given_up"], old["repeats"]
    merged = merge_engine_reports(old, report("qnn"))
    assert merged["given_up"] is None
    assert len(merged["repeats"]) == 1
