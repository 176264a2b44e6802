"""The bench that shows the overlap: what it prints is what happened."""

import json

import pytest

from bench import overlap

QUICK = ["--engine", "onnx_cpu", "--rounds", "1", "--tokens", "16"]


def test_every_adapted_product_is_in_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert overlap.main([*QUICK, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bitwise_equal"]
    assert result["compared"] == {"runs": 3, "tensors": 28}
    assert result["fallbacks"] == []
    assert result["threads"] == ["lorad-onnx_cpu"]
    # Two layers of four products, the last of which isn't computed again; nothing learns below the
    # lowest of them.
    counts = [event["product"] for event in result["trace"]]
    assert [counts.count(name) for name in ("forward", "recompute", "input_gradient")] == [8, 6, 7]
    for event in result["trace"]:
        (started, ended), (begun, wanted) = event["engine"], event["cpu"]
        assert 0 <= started < ended
        assert 0 <= begun < wanted
        assert 0 <= event["cpu_share_hidden"] <= 1
    assert 0 <= result["cpu_share_hidden"] <= 1


def test_the_drawing_says_what_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert overlap.main(QUICK) == 0
    text = capsys.readouterr().out
    assert text.count("█") >= 12
    assert "layer 1, input_gradient" in text
    assert "are the same bits" in text
    assert "a phone saves is unknown" in text


def test_another_engine_than_asked_for_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert overlap.main(QUICK) == 1
    assert "onnxruntime can't be loaded" in capsys.readouterr().out


def test_bars_lie_where_the_times_do() -> None:
    event = {"linear": "layers.0.o_proj", "engine": [10.0, 20.0], "cpu": [0.0, 5.0]}
    engine, cpu = overlap.time_line([{**event, "cpu_share_hidden": None}])
    engine, cpu = engine.split("|")[1], cpu.split("|")[1]
    assert len(engine) == len(cpu)
    assert engine.strip() == "█" * 29
    assert engine.index("█") == 30
    assert cpu.rstrip() == "▒" * 15
