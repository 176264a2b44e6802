"""Opening the engine a run asked for: the choice, the self-test, and what to do if it fails."""

from __future__ import annotations

from typing import get_args

import torch

from npu.engine import Engine, EngineName, RequestedEngine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.htp import find_snapdragon
from npu.ledger import Ledger
from npu.weights import FrozenWeights


def open_engine(
    weights: FrozenWeights,
    requested: RequestedEngine = "auto",
    options: EngineOptions | None = None,
) -> Engine:
    """Open the engine `requested` over the matrices of `weights`; `torch_cpu` if it can't be had.

    `auto` is `qnn` on a real Snapdragon and `torch_cpu` elsewhere; the x86 emulator runs only
    when `qnn` is asked for by name. `qnn` and `onnx_cpu` pass the self-test before use. A failure
    to open or to pass falls back to `torch_cpu` with its cause in `report()["fallbacks"]`.

    `options.threads` becomes torch's thread count of this process as well.

    Raises ValueError for another name.
    """
    if requested not in get_args(RequestedEngine):
        raise ValueError(
            f"expected an engine of {', '.join(get_args(RequestedEngine))}, found {requested!r}: "
            "choose one of them"
        )
    options = options or EngineOptions()
    torch.set_num_threads(options.threads)
    chosen, why = choose_engine(requested)
    engine = create_engine("torch_cpu", weights.matrices, options)
    if chosen != "torch_cpu":
        try:
            engine = _open_tested(chosen, weights, engine, options)
        except EngineError as failure:
            why = f"{chosen} can't be used: {failure}"
            engine.ledger.fallback(chosen, str(failure), None, None)
    engine.requested = requested
    engine.why = why
    return engine


def choose_engine(requested: RequestedEngine) -> tuple[EngineName, str]:
    """The engine meant by `requested` on this machine, and why."""
    if requested != "auto":
        return requested, "asked for by name"
    snapdragon = find_snapdragon()
    if snapdragon.found:
        return "qnn", snapdragon.reason
    return "torch_cpu", f"no Snapdragon NPU to use here: {snapdragon.reason}"


def _open_tested(
    name: EngineName,
    weights: FrozenWeights,
    fallback: Engine,
    options: EngineOptions,
) -> Engine:
    """Create the engine `name` and let it pass the self-test. Raises EngineError."""
    from npu.selftest import check_engine

    engine = create_engine(name, weights.matrices, options, fallback=fallback)
    check_engine(engine, {matrix.format for matrix in weights.matrices.values()})
    engine.ledger = Ledger(engine.name)
    return engine
