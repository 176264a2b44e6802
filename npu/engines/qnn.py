"""The products on a Snapdragon's NPU (HTP) through onnxruntime-qnn, or on its x86 emulator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from npu.engine import Engine, EngineName
from npu.engines.graph_engine import GraphEngine
from npu.sessions import HtpSessions, onnxruntime_versions
from npu.weights import FrozenMatrix


class QnnEngine(GraphEngine):
    """GraphEngine on the HTP: a graph runs there as a whole, or the product fails."""

    name: ClassVar[EngineName] = "qnn"

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        *,
        threads: int,
        fallback: Engine | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        """An engine over `matrices`. Raises EngineError if onnxruntime-qnn can't be used."""
        sessions = HtpSessions(cache_dir=cache_dir)
        super().__init__(matrices, sessions, threads=threads, fallback=fallback)
        self._device = sessions.device

    @property
    def device(self) -> str:
        """The SoC, or what the emulator imitates."""
        return self._device

    def versions(self) -> dict[str, str]:
        """Also those of onnxruntime and onnxruntime-qnn."""
        return super().versions() | onnxruntime_versions(qnn=True)
