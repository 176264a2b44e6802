"""Sessions that run where they should, and compiled graphs kept on disk."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

import npu.sessions
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.graphs import OPERAND, RESULT, WEIGHT, GraphSpec, build_graph
from npu.htp import SOCS, DetectedSoc, Soc
from npu.quantize import quantize_int8
from npu.sessions import HtpSessions, cpu_sessions
from npu.weights import FrozenMatrix
from tests.npu.conftest import random_weight


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


def product(engine: Engine, matrix: FrozenMatrix) -> torch.Tensor:
    return engine.forward("m", torch.linspace(-1, 1, 3 * matrix.shape[1]).view(3, -1))


@pytest.fixture
def matrix() -> FrozenMatrix:
    return FrozenMatrix("m", "int8", *quantize_int8(random_weight(24, 40, 3)))


def cached(matrix: FrozenMatrix, folder: Path) -> Engine:
    return create_engine("qnn", {"m": matrix}, EngineOptions(cache_dir=folder))


@pytest.mark.emulator
def test_compiled_graphs_are_kept_and_used_again(
    matrix: FrozenMatrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = product(
        create_engine("qnn", {"m": matrix}, EngineOptions(threads=1, cache_dir=tmp_path)), matrix
    )
    (kept,) = tmp_path.glob("*/*")
    assert kept.suffix == ".context"

    def must_not(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(HtpSessions, "_compile_and_keep", must_not)
    again = product(
        create_engine("qnn", {"m": matrix}, EngineOptions(threads=1, cache_dir=tmp_path)), matrix
    )
    assert torch.equal(first, again)


@pytest.mark.emulator
@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "not a model"])
def test_a_damaged_compiled_graph_never_reaches_the_loader(
    matrix: FrozenMatrix, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = product(
        create_engine("qnn", {"m": matrix}, EngineOptions(threads=1, cache_dir=tmp_path)), matrix
    )
    (kept,) = tmp_path.glob("*/*")
    content = bytearray(kept.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    elif damage == "truncated":
        del content[-100:]
    elif damage == "empty":
        content.clear()
    else:
        content[32:] = b"x"
        import hashlib

        content[:32] = hashlib.sha256(b"x").digest()
    kept.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        again = product(
            create_engine("qnn", {"m": matrix}, EngineOptions(threads=1, cache_dir=tmp_path)),
            matrix,
        )
    assert torch.equal(first, again)
    assert caplog.records


@pytest.mark.emulator
def test_a_disk_that_refuses_costs_nothing_but_the_cache(
    matrix: FrozenMatrix, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    engine = create_engine("qnn", {"m": matrix}, EngineOptions(threads=1, cache_dir=blocked))
    with caplog.at_level(logging.WARNING):
        result = product(engine, matrix)
    assert result.shape == (3, 24)
    assert "could not be kept" in caplog.text


@pytest.mark.emulator
def test_the_cache_belongs_to_versions_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = build_graph(GraphSpec("fp16", "forward", N=6, K=10, M=8))
    HtpSessions(cache_dir=tmp_path)(graph)
    HtpSessions(cache_dir=tmp_path, soc=SOCS[2])(graph)
    monkeypatch.setattr(
        npu.sessions, "onnxruntime_versions", lambda *, qnn: {"onnxruntime-qnn": "9.9"}
    )
    HtpSessions(cache_dir=tmp_path)(graph)
    assert len(list(tmp_path.iterdir())) == 3
