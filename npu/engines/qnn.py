"""The products on a Snapdragon's NPU (HTP) through onnxruntime-qnn, or on its x86 emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.graph_engine import GraphEngine
from npu.forms.inputs import InputsForm
from npu.frozen_matrix import FrozenMatrix
from npu.sessions import HtpSessions, onnxruntime_versions


class QnnEngine(GraphEngine):
    """GraphEngine on the HTP: a graph runs there as a whole, or the product fails."""

    name: ClassVar[EngineName] = "qnn"

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        options: EngineOptions,
        *,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices`. Raises EngineError if onnxruntime-qnn can't be used."""
        sessions = HtpSessions(soc=options.soc, cache_dir=options.cache_dir)
        form = InputsForm(sessions)
        super().__init__(matrices, options, form, form_why="the simplest graphs", fallback=fallback)
        self._device = sessions.device
        self.soc = sessions.soc

    @property
    def device(self) -> str:
        """The SoC, or what the emulator imitates."""
        return self._device

    def versions(self) -> dict[str, str]:
        """Also those of onnxruntime and onnxruntime-qnn."""
        return super().versions() | onnxruntime_versions(qnn=True)
