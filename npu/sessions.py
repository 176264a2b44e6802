"""onnxruntime sessions on its CPU provider and on Qualcomm's HTP, with every option checked by us.

See `htp_options.py`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from npu.context_cache import ContextCache, digest
from npu.errors import EngineError, one_line
from npu.htp import EMULATED_SOC, Soc, detect_soc, is_emulator, soc_name
from npu.htp_options import check_provider_options, check_session_options
from npu.qnn_libraries import user_libraries

_log = logging.getLogger(__name__)

QNN_PROVIDER = "QNNExecutionProvider"
_CPU_PROVIDER = "CPUExecutionProvider"
_ERRORS_ONLY = 3
_CONTEXT = "context.onnx"


class Session(Protocol):
    """The part of onnxruntime.InferenceSession that we use."""

    def get_providers(self) -> list[str]:
        """The execution providers of the session."""

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The named outputs, all for None, of the graph fed with these arrays."""


SessionOpener = Callable[[bytes], Session]
"""Opens a session of an ONNX model given as bytes; raises EngineError."""

FileOpener = Callable[[bytes | Path], Session]
"""Also of one in a file, which may refer to data beside it."""


def cpu_sessions(threads: int, *, keep_codes: bool = False) -> FileOpener:
    """Sessions on onnxruntime's own CPU provider. Raises EngineError without onnxruntime.

    With `keep_codes`, static weights stay the codes they are: constants aren't folded, which would
    expand them to fp32, and int8 is not rewritten as uint8, which fails on a gathered table.
    """
    ort = _onnxruntime()
    disabled = ["ConstantFolding", "QDQS8ToU8Transformer"] if keep_codes else []

    def open_session(model: bytes | Path) -> Session:
        options = _session_options(ort, threads, {})
        return _open(ort, model, options, [_CPU_PROVIDER], disabled)

    return open_session


class HtpSessions:
    """Sessions that run whole graphs on the HTP, the emulator's on x86, or fail to open."""

    def __init__(self, *, soc: Soc | None = None, cache_dir: Path | None = None) -> None:
        """Load onnxruntime-qnn and compile for `soc`; None: for the phone's own, which QNN finds.

        With `cache_dir`, compiled graphs are kept there. Raises EngineError naming the cause.
        """
        self._ort = _onnxruntime()
        htp = _register_qnn(self._ort)
        self._device = _qnn_device(self._ort)
        self._provider_options = {
            "backend_path": str(htp),
            "enable_htp_fp16_precision": "1",
            "htp_performance_mode": "sustained_high_performance",
        }
        if is_emulator():
            soc = soc or EMULATED_SOC
            self.device = f"HTP emulator (x86) soc {soc.soc_model} v{soc.htp_arch}"
        else:
            self.device = f"HTP of {soc_name()}"
            if soc is not None:
                self.device += f", compiled for {soc.part}"
        self.compiled_for = soc
        """The SoC that QNN was told; None: it finds the phone's own."""
        if soc is not None:
            self._provider_options |= {
                "soc_model": str(soc.soc_model),
                "htp_arch": str(soc.htp_arch),
            }
        self.soc = soc.part if soc else detect_soc().part
        check_provider_options(self._provider_options)
        self.cache = (
            ContextCache(
                cache_dir,
                versions=onnxruntime_versions(qnn=True),
                options={**self._provider_options, "device": self.device},
            )
            if cache_dir
            else None
        )

    def __call__(self, model: bytes) -> Session:
        """Open a session of `model`, from the cache if it holds it. Raises EngineError."""
        if self.cache is None:
            return self.compile(model, {})
        key = self.cache.key({_CONTEXT: digest(model)})
        try:
            kept = self.cache.load(key)
            if kept is not None:
                return self.compile(kept[_CONTEXT].read_bytes(), {})
            return self._compile_and_keep(model, self.cache, key)
        except (EngineError, OSError) as error:
            _log.warning("a compiled graph can't be used again: %s", error)
            self.cache.remove(key)
            return self.compile(model, {})

    def _compile_and_keep(self, model: bytes, cache: ContextCache, key: str) -> Session:
        with tempfile.TemporaryDirectory(prefix="lorad-graph-") as folder:
            context = Path(folder) / _CONTEXT
            session = self.compile(
                model,
                {
                    "ep.context_enable": "1",
                    "ep.context_file_path": str(context),
                    "ep.context_embed_mode": "1",
                },
            )
            try:
                cache.store(key, {_CONTEXT: context})
            except OSError as error:
                _log.warning("a compiled graph can't be kept: %s", error)
        return session

    def compile(self, model: bytes | Path, entries: Mapping[str, str]) -> Session:
        """Open a session of `model` with further session options. Raises EngineError."""
        options = _session_options(
            self._ort, 1, {"session.disable_cpu_ep_fallback": "1", **entries}
        )
        options.add_provider_for_devices([self._device], self._provider_options)
        session = _open(self._ort, model, options, None)
        if QNN_PROVIDER not in session.get_providers():
            raise EngineError(
                f"expected a session on {QNN_PROVIDER}, found one on {session.get_providers()}: "
                "onnxruntime and onnxruntime-qnn don't fit each other"
            )
        return session


def _qnn_device(ort: ModuleType) -> Any:
    """The NPU among the devices of onnxruntime-qnn; the emulator's presents itself as a CPU."""
    devices = [device for device in ort.get_ep_devices() if device.ep_name == QNN_PROVIDER]
    if not devices:
        raise EngineError(
            "expected a device of onnxruntime-qnn, found none: its libraries don't fit this machine"
        )
    npu = ort.OrtHardwareDeviceType.NPU
    return next((device for device in devices if device.device.type == npu), devices[0])


def onnxruntime_versions(*, qnn: bool) -> dict[str, str]:
    """Versions of the distributions that compute; of the user's own libraries, their hash."""
    versions = {"onnxruntime": _version("onnxruntime")}
    if qnn:
        libraries = user_libraries()
        own = _version("onnxruntime-qnn") if libraries is None else libraries.identity
        versions["onnxruntime-qnn"] = own
    return versions


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _session_options(ort: ModuleType, threads: int, entries: Mapping[str, str]) -> Any:
    # Every graph has its own session, and so its own threads: they must sleep when not used.
    entries = {"session.intra_op.allow_spinning": "0", **entries}
    check_session_options(entries)
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return options


def _open(
    ort: ModuleType,
    model: bytes | Path,
    options: Any,
    providers: list[str] | None,
    disabled_optimizers: Sequence[str] = (),
) -> Session:
    try:
        session: Session = ort.InferenceSession(
            model, options, providers=providers, disabled_optimizers=list(disabled_optimizers)
        )
        return session
    except Exception as error:  # onnxruntime's errors share no base class
        raise EngineError(f"onnxruntime could not open a graph: {one_line(error)}") from error


def _onnxruntime() -> ModuleType:
    return _import("onnxruntime", "onnxruntime")


def _import(module: str, distribution: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        raise EngineError(f"{distribution} can't be loaded: {one_line(error)}") from error


def _register_qnn(ort: ModuleType) -> Path:
    """Register QNN's provider with `ort`, once a process; the path of its HTP library.

    It is that of the package onnxruntime-qnn or, where that isn't installed, the user's.
    """
    libraries = user_libraries()
    if libraries is None:
        qnn = _import("onnxruntime_qnn", "onnxruntime-qnn")
        provider, htp = Path(qnn.get_library_path()), Path(qnn.get_qnn_htp_path())
    else:
        provider, htp = libraries.provider, libraries.htp
    if any(device.ep_name == QNN_PROVIDER for device in ort.get_ep_devices()):
        return htp
    try:
        ort.register_execution_provider_library(QNN_PROVIDER, str(provider))
    except Exception as error:  # onnxruntime's errors share no base class
        raise EngineError(f"the QNN provider can't be registered: {one_line(error)}") from error
    return htp
