"""Any ONNX models compiled into one shared context of the HTP, opened without `npu`.

So the static pairs of `bench.one_copy` don't depend on how our own context is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import onnxruntime_qnn

from npu.htp import EMULATED_SOC

_PROVIDER = "QNNExecutionProvider"


class StaticContext:
    """Sessions of the models, in their order; what they share lies in `folder`."""

    def __init__(self, models: Sequence[bytes], folder: Path) -> None:
        """Compile all of them. Whatever onnxruntime raises passes through."""
        onnxruntime.register_execution_provider_library(
            _PROVIDER, onnxruntime_qnn.get_library_path()
        )
        self._device = next(
            device for device in onnxruntime.get_ep_devices() if device.ep_name == _PROVIDER
        )
        self._folder = folder
        self.sessions = [
            self._open(model, number, len(models)) for number, model in enumerate(models)
        ]
        self.bytes = sum(path.stat().st_size for path in folder.glob("*.bin"))
        """Of the context binary."""
        self.spill_bytes = max(map(_declared_scratch, folder.glob("*_context.onnx")))
        """The scratch that the context declares."""

    def _open(self, model: bytes, number: int, count: int) -> Any:
        path = self._folder / f"{number}.onnx"
        path.write_bytes(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        entries = {
            "session.disable_cpu_ep_fallback": "1",
            "ep.context_enable": "1",
            "ep.context_embed_mode": "0",
            "ep.context_file_path": str(self._folder / f"{number}_context.onnx"),
        }
        if count > 1:
            entries["ep.share_ep_contexts"] = "1"
        if number == count - 1 and count > 1:
            entries["ep.stop_share_ep_contexts"] = "1"
        for name, value in entries.items():
            options.add_session_config_entry(name, value)
        options.add_provider_for_devices(
            [self._device],
            {
                "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
                "soc_model": str(EMULATED_SOC.soc_model),
                "htp_arch": str(EMULATED_SOC.htp_arch),
                "enable_htp_fp16_precision": "1",
            },
        )
        return onnxruntime.InferenceSession(str(path), options)


def _declared_scratch(path: Path) -> int:
    nodes = onnx.load(str(path)).graph.node
    found = [a.i for node in nodes for a in node.attribute if a.name == "max_size"]
    return max(found, default=0)
