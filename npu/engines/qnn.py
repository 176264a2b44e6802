"""The products on a Snapdragon's NPU (HTP) through onnxruntime-qnn, or on its x86 emulator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.graph_engine import GraphEngine
from npu.errors import EngineError
from npu.forms.form import Form
from npu.forms.inputs import InputsForm
from npu.forms.table import table_in_one_context
from npu.frozen_matrix import FrozenMatrix
from npu.htp import is_emulator
from npu.integer_products import IntegerProducts
from npu.sessions import HtpSessions, onnxruntime_versions

_EMULATED_PARAMETERS = 16_000_000
"""SmolLM2's 135 million took 4 to 7 minutes and 5 to 6 GB with all buckets (measured)."""


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
        """An engine over `matrices`; form `table` is compiled at once, and `auto` tries it first.

        Raises EngineError if onnxruntime-qnn can't be used, or the form asked for not be made.
        """
        sessions = HtpSessions(soc=options.soc, cache_dir=options.cache_dir)
        form, why = _form(matrices, options, sessions)
        integers = IntegerProducts(sessions) if options.activations == "int16" else None
        super().__init__(
            matrices, options, form, form_why=why, integers=integers, fallback=fallback
        )
        self._device = sessions.device
        self.soc = sessions.soc

    @property
    def device(self) -> str:
        """The SoC, or what the emulator imitates."""
        return self._device

    def versions(self) -> dict[str, str]:
        """Also those of onnxruntime and onnxruntime-qnn."""
        return super().versions() | onnxruntime_versions(qnn=True)


def _parameters(matrices: Mapping[str, FrozenMatrix]) -> int:
    return sum(math.prod(matrix.shape) for matrix in matrices.values())


def _form(
    matrices: Mapping[str, FrozenMatrix], options: EngineOptions, sessions: HtpSessions
) -> tuple[Form, str]:
    """The form `options` ask for, and why it is this one. Raises EngineError."""
    if options.form == "inputs":
        return InputsForm(sessions), "asked for by name"
    if options.form == "auto" and is_emulator() and _parameters(matrices) > _EMULATED_PARAMETERS:
        return InputsForm(sessions), (
            "the emulator compiles a table anew in each process, which takes minutes for so large "
            "a model; form table can be asked for by name"
        )
    if options.activations == "int16":
        return InputsForm(sessions), "16-bit integer products take the weight as an input"
    try:
        table = table_in_one_context(matrices.values(), options.buckets, sessions)
    except EngineError as failure:
        if options.form == "table":
            raise
        return InputsForm(sessions), f"form table can't be used: {failure}"
    if options.form == "table":
        return table, "asked for by name"
    return table, "one copy of the weights, inside the compiled context, serves both directions"
