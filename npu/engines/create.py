"""Creating an engine by name; each is imported only when it is meant to run."""

from __future__ import annotations

from collections.abc import Mapping

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.frozen_matrix import FrozenMatrix


def create_engine(
    name: EngineName,
    matrices: Mapping[str, FrozenMatrix],
    options: EngineOptions,
    *,
    fallback: Engine | None = None,
) -> Engine:
    """An engine that hasn't been tested.

    Raises EngineError if what it needs can't be loaded.
    """
    if name == "qnn":
        from npu.engines.qnn import QnnEngine

        return QnnEngine(matrices, options, fallback=fallback)
    if name == "onnx_cpu":
        from npu.engines.onnx_cpu import OnnxCpuEngine

        return OnnxCpuEngine(matrices, options, fallback=fallback)
    from npu.engines.torch_cpu import TorchCpuEngine

    return TorchCpuEngine(matrices, options)
