"""An engine that passed its checks: made in the form asked for, or in the next one that passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.frozen_matrix import FrozenMatrix
from npu.selftest import check_engine


def create_checked_engine(
    name: EngineName,
    matrices: Mapping[str, FrozenMatrix],
    options: EngineOptions,
    *,
    fallback: Engine | None = None,
) -> Engine:
    """The engine `name` over `matrices`, of which every table was tried.

    With form `auto`, form `inputs` is tried where form `table` compiles but computes something
    else. Raises EngineError naming the cause.
    """
    engine = create_engine(name, matrices, options, fallback=fallback)
    try:
        check_engine(engine)
    except EngineError as failure:
        if options.form != "auto" or engine.form != "table":
            raise
        engine = create_engine(name, matrices, replace(options, form="inputs"), fallback=fallback)
        engine.form_why = f"form table can't be used: {failure}"
        check_engine(engine)
    return engine
