"""The NPU's graphs on onnxruntime's CPU provider: the same fp16 rounding, for CI and comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.graph_engine import GraphEngine
from npu.forms.form import Form
from npu.forms.inputs import InputsForm
from npu.forms.table import table_in_separate_graphs
from npu.frozen_matrix import FrozenMatrix
from npu.integer_products import IntegerProducts
from npu.sessions import cpu_sessions, onnxruntime_versions


class OnnxCpuEngine(GraphEngine):
    """GraphEngine on the CPU."""

    name: ClassVar[EngineName] = "onnx_cpu"

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        options: EngineOptions,
        *,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices`. Raises EngineError if onnxruntime can't be loaded."""
        why = "asked for by name"
        if options.form == "table":
            separate = cpu_sessions(options.threads, keep_codes=True)
            form: Form = table_in_separate_graphs(matrices.values(), separate)
        else:
            form = InputsForm(cpu_sessions(options.threads))
            if options.form == "auto":
                why = "a table saves nothing where no context is compiled"
        integers = None
        if options.activations == "int16":
            integers = IntegerProducts(cpu_sessions(options.threads))
        super().__init__(
            matrices, options, form, form_why=why, integers=integers, fallback=fallback
        )

    @property
    def device(self) -> str:
        """Always the CPU."""
        return "cpu"

    def versions(self) -> dict[str, str]:
        """Also onnxruntime's."""
        return super().versions() | onnxruntime_versions(qnn=False)
