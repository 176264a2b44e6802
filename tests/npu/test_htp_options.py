"""No option reaches a native library that it would misread: those we know, spelt as it does."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from npu.htp import SOCS
from npu.htp_options import (
    PERFORMANCE_MODES,
    PROVIDER_OPTIONS,
    SESSION_OPTIONS,
    check_provider_options,
    check_session_options,
)

ROOT = Path(__file__).parents[2]
OPTION = re.compile(
    r"(ep|session|qnn|mlas|optimization)\.[a-z_.]+|(enable_)?htp_[a-z_0-9]+|"
    r"(soc_model|backend_path|vtcm_mb|rpc_control_latency|offload_graph_io_quantization)"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"htp_performence_mode": "burst"}, "'htp_performence_mode'"),
        ({"htp_performance_mode": "fast"}, "htp_performance_mode: .*'fast'"),
        ({"enable_htp_fp16_precision": "true"}, "enable_htp_fp16_precision"),
        ({"soc_model": "57", "htp_arch": "73"}, "57 with 73"),
        ({"soc_model": "57"}, "57 with None"),
        ({"htp_arch": "75"}, "None with 75"),
        ({"soc_model": "58", "htp_arch": "75"}, "soc_model"),
        ({"backend_path": ""}, "backend_path: expected a path"),
    ],
)
def test_provider_options_qnn_would_swallow_are_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_provider_options(options)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"session.disable_cpu_fallback": "1"}, r"session\.disable_cpu_fallback"),
        ({"session.disable_cpu_ep_fallback": "yes"}, "'yes'"),
        ({"ep.context_file_path": ""}, "expected a path"),
        ({"ep.share_ep_contexts": "1", "ep.context_embed_mode": "1"}, "context_embed_mode 0"),
        ({"ep.stop_share_ep_contexts": "1"}, "found it alone"),
    ],
)
def test_session_options_are_checked_too(entries: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_session_options(entries)


def test_what_we_need_is_allowed() -> None:
    for soc in SOCS:
        check_provider_options({"soc_model": str(soc.soc_model), "htp_arch": str(soc.htp_arch)})
    for mode in PERFORMANCE_MODES:
        check_provider_options({"htp_performance_mode": mode})
    check_session_options(
        {
            "ep.share_ep_contexts": "1",
            "ep.stop_share_ep_contexts": "1",
            "ep.context_enable": "1",
            "ep.context_embed_mode": "0",
            "ep.context_file_path": "/somewhere/context.onnx",
        }
    )


def option_names(path: Path) -> Iterator[str]:
    """Texts of a source file that look like the name of an option."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and OPTION.fullmatch(str(node.value)):
            yield str(node.value)


def test_every_option_named_anywhere_is_in_a_table() -> None:
    known = PROVIDER_OPTIONS.keys() | SESSION_OPTIONS.keys()
    used: set[str] = set()
    for room in ("npu", "trainer", "bench", "service"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if path.name == "htp_options.py":
                continue
            names = set(option_names(path))
            used |= names
            assert names <= known, f"{path}: {sorted(names - known)}"
    assert {"soc_model", "enable_htp_fp16_precision", "ep.context_enable"} <= used


@pytest.mark.emulator
def test_the_libraries_spell_them_the_same_way() -> None:
    """QNN says nothing about a name it doesn't know; the names it does know are in its code."""
    qnn = importlib.import_module("onnxruntime_qnn")
    provider = Path(qnn.get_library_path()).read_bytes()
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    (runtime,) = (Path(spec.origin).parent / "capi").glob("onnxruntime_pybind11_state*.so")
    runtime_bytes = runtime.read_bytes()
    for name in (*PROVIDER_OPTIONS, *PERFORMANCE_MODES):
        assert name.encode() in provider, name
    for name in SESSION_OPTIONS:
        library = provider if name.startswith("ep.") else runtime_bytes
        assert name.encode() in library, name
    assert b"htp_performence_mode" not in provider
