"""All graphs of a model in one context of the emulator: its size, and what a failed one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import npu.engines.qnn
import npu.shared_context
from npu.checked_engine import create_checked_engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.forms.tables import Tables
from npu.frozen_matrix import FrozenMatrix
from npu.quantize import quantize
from npu.sessions import HtpSessions
from npu.weight_layout import WeightFormat
from tests.npu.conftest import random_weight

Patch = pytest.MonkeyPatch


def weights(N: int, K: int, format: WeightFormat, layers: int) -> dict[str, FrozenMatrix]:
    found = {}
    for layer in range(layers):
        quantized = quantize(random_weight(N, K, layer), format)
        found[str(layer)] = FrozenMatrix(
            str(layer), format, quantized.codes, quantized.scale, quantized.offset
        )
    return found


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("format", "bytes_per_parameter"),
    [("fp16", 2.15), ("int8", 1.15), ("int4", 0.70), ("int4_min", 0.82)],
)
def test_one_copy_serves_both_directions_and_every_bucket(
    format: WeightFormat, bytes_per_parameter: float
) -> None:
    """A static weight used both ways takes 4.05 B/param in fp16 and 2.08 in int8."""
    matrices = weights(768, 512, format, layers=4)
    parameters = 4 * 768 * 512
    both = EngineOptions(form="table", buckets=(8,))
    every = EngineOptions(form="table", buckets=(8, 32, 64))
    context = create_engine("qnn", matrices, both).report()["context"]
    assert context["graphs"] == 2
    assert (context["bytes"] + context["spill_bytes"]) / parameters <= bytes_per_parameter
    assert context["bytes"] > matrices["0"].codes.nbytes * 4
    if format == "int8":
        more = create_engine("qnn", matrices, every).report()["context"]
        assert more["graphs"] == 6
        assert more["bytes"] - context["bytes"] < 4 * 80_000, "a graph, and no copy of the weights"


@pytest.mark.emulator
def test_nothing_is_left_on_the_disk(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    matrices = weights(96, 64, "int4", layers=2)
    engine = create_engine("qnn", matrices, EngineOptions(form="table", buckets=(8,)))
    assert not list(tmp_path.iterdir())
    assert engine.forward("1", torch.ones(3, 64)).any()


def broken(patch: Patch, *, at: int) -> list[Path]:
    """Let the compiler refuse the graph with that number."""
    compile = HtpSessions.compile
    seen: list[Path] = []

    def refuse(self: HtpSessions, model: bytes | Path, entries: dict[str, str]) -> object:
        if "ep.share_ep_contexts" in entries:
            assert isinstance(model, Path)
            seen.append(model)
            if len(seen) > at:
                raise EngineError("onnxruntime could not open a graph: MEM_ALLOC 1002")
        return compile(self, model, entries)

    patch.setattr(HtpSessions, "compile", refuse)
    patch.setattr(npu.shared_context, "_failure", None)
    patch.setattr(npu.shared_context, "_exit_without_destructors", lambda: None)
    return seen


@pytest.mark.emulator
def test_auto_takes_inputs_where_no_context_can_be_made_and_tries_once_a_process(
    monkeypatch: Patch,
) -> None:
    seen = broken(monkeypatch, at=0)
    matrices = weights(96, 64, "int8", layers=1)
    engine = create_checked_engine("qnn", matrices, EngineOptions())
    report = engine.report()
    assert report["form"] == report["versions"]["form"] == "inputs"
    assert "MEM_ALLOC 1002" in report["form_why"]
    assert "context" not in report
    assert engine.forward("0", torch.ones(3, 64)).shape == (3, 96)
    with pytest.raises(EngineError, match=r"failed in this process before: .*MEM_ALLOC 1002"):
        create_engine("qnn", matrices, EngineOptions(form="table"))
    assert len(seen) == 1


@pytest.mark.emulator
def test_a_real_failure_is_told_and_the_process_ends_as_it_means_to() -> None:
    """A table the compiler can't digest; without our care QNN's destructors abort the process."""
    program = (
        "import sys, numpy as np, npu.forms.tables as tables\n"
        "tables._LARGEST_PIECE = tables._LARGEST_ROW = 1 << 30\n"
        "import npu.graphs_table as graphs\n"
        "graphs._MOST_GROUPS = 8\n"
        "from npu.engine_options import EngineOptions\n"
        "from npu.engines.create import create_engine\n"
        "from npu.frozen_matrix import FrozenMatrix\n"
        "def m(name, N, K):\n"
        "    return FrozenMatrix(name, 'int8', np.ones((N, K), np.int8), np.ones(N, np.float32))\n"
        "matrices = {'small': m('small', 96, 64), 'large': m('large', 16384, 576)}\n"
        "engine = create_engine('qnn', matrices, EngineOptions(buckets=(8,)))\n"
        "import torch\n"
        "assert engine.forward('small', torch.ones(3, 64))[0, 0] == 0.5\n"
        "print(engine.report()['form_why'])\n"
        "sys.exit(75)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert "form table can't be used" in done.stdout, done.stderr
    assert "Failed to finalize QNN graph" in done.stdout
    assert done.returncode == 75, done.stderr


def swap_first_and_last(patch: Patch) -> None:
    """Each entry of a table is found, but not where it lies."""
    place = Tables.place

    def other(self: Tables, piece: object) -> object:
        spec, rows = place(self, piece)  # type: ignore[arg-type]
        return spec, (spec.entries * spec.groups - 1 - rows)[::-1].astype(np.int32)

    patch.setattr(Tables, "place", other)


@pytest.mark.parametrize("layers", [2, 3])
def test_a_wrong_index_does_not_pass(layers: int, monkeypatch: Patch) -> None:
    matrices = weights(96, 64, "int8", layers=layers)
    options = EngineOptions(form="table", buckets=(8,))
    create_checked_engine("onnx_cpu", matrices, options)
    swap_first_and_last(monkeypatch)
    with pytest.raises(EngineError, match="self-test"):
        create_checked_engine("onnx_cpu", matrices, options)


def test_a_wrong_table_of_the_model_itself_does_not_pass(monkeypatch: Patch) -> None:
    """The self-test's own weights are right; the model's last layer is not."""
    matrices = weights(96, 64, "int8", layers=3)
    options = EngineOptions(form="table", buckets=(8,))
    place = Tables.place

    def stale(self: Tables, piece: object) -> object:
        spec, rows = place(self, piece)  # type: ignore[arg-type]
        return spec, rows % (2 * spec.groups) if spec.entries == 3 else rows

    monkeypatch.setattr(Tables, "place", stale)
    with pytest.raises(EngineError, match="the check of '2' in its table"):
        create_checked_engine("onnx_cpu", matrices, options)


@pytest.mark.emulator
def test_a_large_model_takes_inputs_on_the_emulator_unless_told_otherwise(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(npu.engines.qnn, "_EMULATED_PARAMETERS", 96 * 160 - 1)
    matrices = weights(96, 160, "int8", layers=1)
    engine = create_engine("qnn", matrices, EngineOptions(buckets=(8,)))
    assert (engine.form, engine.requested) == ("inputs", "qnn")
    assert "minutes" in (engine.form_why or "")
    engine = create_engine("qnn", matrices, EngineOptions(buckets=(8,), form="table"))
    assert engine.form == "table"
    monkeypatch.setattr(npu.engines.qnn, "_EMULATED_PARAMETERS", 96 * 160)
    assert create_engine("qnn", matrices, EngineOptions(buckets=(8,))).form == "table"
