"""Sessions that run where they should, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

import npu.sessions
from npu.errors import EngineError
from npu.graphs import OPERAND, RESULT, WEIGHT, GraphSpec, build_graph
from npu.htp import SOCS, DetectedSoc, Soc
from npu.sessions import HtpSessions, cpu_sessions


def test_bytes_that_are_no_model_are_an_engine_error() -> None:
    with pytest.raises(EngineError, match="could not open"):
        cpu_sessions(1)(b"not a model")


@pytest.mark.emulator
@pytest.mark.parametrize("soc", SOCS, ids=lambda soc: soc.part)
def test_every_soc_compiles_the_graphs_and_agrees(soc: Soc) -> None:
    generator = np.random.default_rng(0)
    sessions = HtpSessions(soc=soc)
    assert f"soc {soc.soc_model} v{soc.htp_arch}" in sessions.device
    assert sessions.soc == soc.part
    codes = generator.integers(-127, 128, (24, 40)).astype(np.int8)
    for direction, width in (("forward", 40), ("input_gradient", 24)):
        operand = generator.standard_normal((8, width)).astype(np.float16)
        spec = GraphSpec("int8", direction, N=24, K=40, M=8)  # type: ignore[arg-type]
        (result,) = sessions(build_graph(spec)).run([RESULT], {OPERAND: operand, WEIGHT: codes})
        weight = codes.T / 128 if direction == "forward" else codes / 128
        expected = operand.astype(np.float64) @ weight
        # fp16's rounding of the result, 2**-11
        assert np.linalg.norm(result - expected) / np.linalg.norm(expected) < 2**-11


@pytest.mark.emulator
def test_a_phone_is_compiled_for_as_itself_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What QNN is told on a phone; the sessions themselves can't be opened here."""
    detected = DetectedSoc("SM8750", SOCS[2])
    monkeypatch.setattr(npu.sessions, "is_emulator", lambda: False)
    monkeypatch.setattr(npu.sessions, "detect_soc", lambda: detected)
    monkeypatch.setattr(npu.sessions, "soc_name", lambda: detected.name)
    own = HtpSessions()
    assert not {"soc_model", "htp_arch"} & own._provider_options.keys()
    assert (own.soc, own.device) == ("SM8750", "HTP of SM8750, Snapdragon 8 Elite")
    told = HtpSessions(soc=SOCS[3])
    assert told._provider_options.items() >= {("soc_model", "87"), ("htp_arch", "81")}
    assert (told.soc, told.device.rpartition(", ")[2]) == ("SM8850", "compiled for SM8850")


@pytest.mark.emulator
def test_a_graph_the_htp_cannot_run_whole_is_refused() -> None:
    """With the CPU provider as a net underneath, it would run there unnoticed."""
    from npu.onnx_format import Node, Value, encode_model

    model = encode_model(
        name="unsupported",
        nodes=[Node("Det", ["x"], ["y"])],
        inputs=[Value("x", "float16", (4, 4))],
        outputs=[Value("y", "float16", ())],
        constants=[],
        opsets={"": 21},
    )
    with pytest.raises(EngineError):
        HtpSessions()(model)
