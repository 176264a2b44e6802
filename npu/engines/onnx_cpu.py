"""The NPU's graphs on onnxruntime's CPU provider: the same fp16 rounding, for CI and comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from npu.engine import Engine, EngineName
from npu.engines.graph_engine import GraphEngine
from npu.sessions import cpu_sessions, onnxruntime_versions
from npu.weights import FrozenMatrix


class OnnxCpuEngine(GraphEngine):
    """GraphEngine on the CPU."""

    name: ClassVar[EngineName] = "onnx_cpu"

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        *,
        threads: int,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices`. Raises EngineError if onnxruntime can't be loaded."""
        super().__init__(matrices, cpu_sessions(threads), threads=threads, fallback=fallback)

    @property
    def device(self) -> str:
        """Always the CPU."""
        return "cpu"

    def versions(self) -> dict[str, str]:
        """Also onnxruntime's."""
        return super().versions() | onnxruntime_versions(qnn=False)
