"""A shared context that is kept: loaded where that was seen to work, else compiled, and why.

No phone is here, and the emulator crashes on loading such a context. So the real compiler and
loader are taken as far as they go, in children where they crash, and a stand-in goes beyond.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

import npu.kept_context
from npu.context_cache import ContextCache
from npu.context_reload import Reload, try_in_child
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.forms.tables import Tables
from npu.frozen_matrix import FrozenMatrix
from npu.htp import SOCS
from npu.kept_context import open_shared_context
from npu.quantize import quantize
from npu.sessions import HtpSessions
from npu.shared_context import SharedContext
from npu.weight_layout import WeightFormat

MODELS = {"forward_32": b"y = x W^T", "gradient_32": b"dx = dy W", "forward_64": b"y = x W^T again"}
BINARY = bytes(range(256)) * 20


class Phone:
    """Compiles and loads as onnxruntime's documentation says that a phone does."""

    def __init__(self, folder: Path, versions: Mapping[str, str]) -> None:
        self.cache = ContextCache(folder, versions=versions, options={}, keep_free_bytes=0)
        self.compiled_for = None
        self.compiled: list[str] = []
        self.loaded: list[str] = []
        self.broken = False
        self._first = ""

    def compile(self, path: Path, entries: Mapping[str, str]) -> object:
        assert entries["ep.share_ep_contexts"] == "1"
        if entries.get("ep.context_enable") != "1":
            return self._load(path, entries)
        assert (path.parent / "int8.table").read_bytes() == b"the weights"
        out = Path(entries["ep.context_file_path"])
        out.write_bytes(b"")  # a model without attributes
        self._first = self._first or path.stem
        if entries.get("ep.stop_share_ep_contexts") == "1":
            (path.parent / f"{self._first}_qnn.bin").write_bytes(BINARY)
            self._first = ""
        self.compiled.append(path.stem)
        return f"compiled {path.stem}"

    def _load(self, path: Path, entries: Mapping[str, str]) -> object:
        assert set(entries) == {"ep.share_ep_contexts"}
        (binary,) = path.parent.glob("*.bin")
        assert binary.read_bytes() == BINARY, "damaged bytes have reached the loader"
        if self.broken:
            raise EngineError("Failed to load from EpContext model")
        self.loaded.append(path.name)
        return f"loaded {path.stem}"


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phone:
    monkeypatch.setattr(npu.kept_context, "is_emulator", lambda: False)
    return Phone(tmp_path, {"onnxruntime-qnn": "2.7.0"})


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was tried in a child; the child itself says that it works."""
    tried: list[list[str]] = []
    answer(monkeypatch, Reload(True, ""), tried)
    return tried


def answer(
    monkeypatch: pytest.MonkeyPatch, reload: Reload, tried: list[list[str]] | None = None
) -> None:
    def stand_in(paths: Any, soc: object) -> Reload:
        (tried if tried is not None else []).append([path.name for path in paths])
        return reload

    monkeypatch.setattr(npu.kept_context, "try_in_child", stand_in)


def open_on(
    phone: Phone, *, models: Mapping[str, bytes] = MODELS, table_hash: str = "abc"
) -> SharedContext:
    return open_shared_context(
        models,
        lambda: {"int8.table": table_hash},
        lambda folder: cast(None, (folder / "int8.table").write_bytes(b"the weights")),
        cast(HtpSessions, phone),
    )


def test_compiled_once_then_loaded_in_order(
    phone: Phone, tries: list[list[str]], tmp_path: Path
) -> None:
    first = open_on(phone)
    assert not first.cached
    assert first.why == "compiled for the first time"
    assert phone.compiled == list(MODELS)
    assert tries == []
    kept = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert kept == {"manifest.json", "forward_32_qnn.bin", *(f"{m}_context.onnx" for m in MODELS)}

    for _ in range(2):
        phone.loaded.clear()
        again = open_on(phone)
        assert again.cached
        assert phone.loaded == [f"{name}_context.onnx" for name in MODELS]
        assert list(again.sessions) == list(MODELS)
        assert again.report()["bytes"] == first.report()["bytes"] == len(BINARY)
        assert again.report()["graphs"] == 3
    assert tries == [[f"{name}_context.onnx" for name in MODELS]], "seen to work once is enough"
    assert phone.compiled == list(MODELS)


def test_other_weights_graphs_or_versions_are_compiled_anew(
    phone: Phone, tries: list[list[str]], tmp_path: Path
) -> None:
    open_on(phone)
    for change in (
        {"table_hash": "abd"},
        {"models": {**MODELS, "forward_32": b"another"}},
        {"models": {name: MODELS[name] for name in list(MODELS)[:2]}},
    ):
        assert not open_on(phone, **change).cached  # type: ignore[arg-type]
    assert open_on(phone).cached
    assert not open_on(Phone(tmp_path, {"onnxruntime-qnn": "2.8.0"})).cached
    assert not open_on(phone).cached, "the newer version's first store removed the older's"


def test_a_damaged_set_is_compiled_anew(
    phone: Phone, tries: list[list[str]], tmp_path: Path
) -> None:
    open_on(phone)
    (binary,) = tmp_path.rglob("*.bin")
    binary.write_bytes(BINARY[:-1] + b"x")
    assert not open_on(phone).cached
    assert open_on(phone).cached


def test_what_cannot_be_loaded_here_is_not_kept_and_not_tried_again(
    phone: Phone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[list[str]] = []
    answer(monkeypatch, Reload(False, "it crashed with SIGSEGV"), tried)
    open_on(phone)
    for _ in range(3):
        context = open_on(phone)
        assert not context.cached
        assert "loading a context that several graphs share failed: it crashed" in context.why
    assert len(tried) == 1
    assert phone.loaded == []
    assert not list(tmp_path.rglob("*.bin"))


def test_a_test_that_chance_ended_is_made_again(
    phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, Reload(False, "it was killed", again=True))
    open_on(phone)
    context = open_on(phone)
    assert not context.cached
    assert "it was killed" in context.why
    answer(monkeypatch, Reload(True, ""))
    assert open_on(phone).cached


def test_a_set_the_loader_refuses_is_compiled_anew(phone: Phone, tries: list[list[str]]) -> None:
    open_on(phone)
    phone.broken = True
    context = open_on(phone)
    assert not context.cached
    assert "can't be loaded: Failed to load" in context.why
    phone.broken = False
    assert open_on(phone).cached


def test_a_full_disk_costs_only_the_cache(phone: Phone, tries: list[list[str]]) -> None:
    phone.cache._keep_free_bytes = 1 << 60
    for _ in range(2):
        context = open_on(phone)
        assert not context.cached
        assert "can't be kept" in context.why
        assert len(context.sessions) == 3


def test_without_a_folder_nothing_is_kept(phone: Phone) -> None:
    phone.cache = None  # type: ignore[assignment]
    assert open_on(phone).why == "no folder to keep it in"


def make_matrix() -> FrozenMatrix:
    codes = np.random.default_rng(0).integers(-127, 128, (48, 64)).astype(np.int8)
    return FrozenMatrix("m", "int8", codes, np.ones(48, np.float32))


@pytest.mark.parametrize("format", ["fp16", "int8", "int4", "int4_min"])
def test_a_tables_hash_is_of_every_number_in_it(format: WeightFormat) -> None:
    weight = np.random.default_rng(0).standard_normal((24, 64)).astype(np.float32)
    quantized = quantize(weight, format)
    arrays = {
        part: array
        for part in ("codes", "scale", "offset")
        if (array := getattr(quantized, part)) is not None
    }

    def hashed(changes: Mapping[str, np.ndarray[Any, Any]]) -> str:
        found = {"scale": None, "offset": None, **arrays, **changes}
        matrix = FrozenMatrix("m", format, **found)
        (table,) = Tables.of([matrix]).tables
        return table.sha256()

    usual = hashed({})
    assert hashed({part: array.copy() for part, array in arrays.items()}) == usual
    in_table = {"codes"} if format in ("fp16", "int8") else arrays.keys()
    for part in in_table:
        for place in (0, arrays[part].size // 2, -1):
            changed = arrays[part].copy()
            changed.view(np.uint8).reshape(-1)[place] ^= 1
            assert hashed({part: changed}) != usual, (part, place)


@pytest.mark.emulator
def test_the_emulator_compiles_in_each_process_and_says_so(tmp_path: Path) -> None:
    options = EngineOptions(form="table", buckets=(32,), cache_dir=tmp_path)
    for _ in range(2):
        engine = create_engine("qnn", {"m": make_matrix()}, options)
        context = engine.report()["context"]
        assert not context["cached"]
        assert context["why"] == "the x86 emulator can't load a context that several graphs share"
        engine.close()
    assert not list(tmp_path.rglob("*"))


COMPILE = """
    import sys
    from pathlib import Path
    import npu.kept_context
    from npu.engine_options import EngineOptions
    from npu.engines.create import create_engine
    from tests.npu.test_kept_context import make_matrix

    npu.kept_context.is_emulator = lambda: False
    options = EngineOptions(form="table", buckets=(32,), cache_dir=Path(sys.argv[1]))
    print(create_engine("qnn", {"m": make_matrix()}, options).report()["context"])
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.emulator
def test_a_real_context_is_kept_whole_and_its_crash_stays_in_the_child(tmp_path: Path) -> None:
    """What the real compiler wrote, kept; the emulator's crash on loading it; and what follows."""
    first = run_python(COMPILE, str(tmp_path))
    assert "'cached': False, 'why': 'compiled for the first time'" in first.stdout, first.stderr
    models = sorted(tmp_path.rglob("*_context.onnx"))
    (binary,) = tmp_path.rglob("*.bin")
    assert len(models) == 2
    for path in models:
        (node,) = onnx.load(path).graph.node
        found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert found["ep_cache_context"].decode() == binary.name, "beside it, wherever they lie"
        assert found["embed_mode"] == 0

    second = run_python(COMPILE, str(tmp_path))
    assert second.returncode == 0, second.stderr
    assert "'cached': False" in second.stdout
    assert "several graphs share failed: it crashed with SIG" in second.stdout
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.emulator
def test_a_child_loads_a_model_that_is_whole_by_itself(tmp_path: Path) -> None:
    """The way through the child to a session and back, with a context of one graph."""
    from npu.graphs import GraphSpec, build_graph

    HtpSessions(cache_dir=tmp_path)(build_graph(GraphSpec("fp16", "forward", N=6, K=10, M=8)))
    assert try_in_child(tmp_path.rglob("context.onnx"), SOCS[1]) == Reload(True, "")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    refused = try_in_child([broken], None)
    assert not refused.works
    assert "could not open a graph" in refused.why
    late = try_in_child([broken], None, seconds=0.01)
    assert late == Reload(False, "it did not end within 0 s", again=True)
