"""Opening the engine a run asked for: the choice, the self-test, and what to do if it fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch

from npu.engine import Engine, RequestedEngine
from npu.engine_choice import choose_engine
from npu.engine_guard import Choice, EngineGuard
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.frozen_matrix import FrozenMatrix
from npu.weights import FrozenWeights


def open_engine(
    weights: FrozenWeights,
    requested: RequestedEngine = "auto",
    options: EngineOptions | None = None,
    guard: EngineGuard | None = None,
    products: Collection[str] | None = None,
) -> Engine:
    """Open the engine `requested` over the matrices of `weights`; `torch_cpu` if it can't be had.

    `products` are those that will be multiplied by, None: all. The others, as an embedding that is
    only looked up, take no memory of the NPU.

    `auto` is `qnn` on a real Snapdragon and `torch_cpu` elsewhere; the x86 emulator runs only
    when `qnn` is asked for by name. `qnn` and `onnx_cpu` pass the self-test before use. A failure
    to open or to pass falls back to `torch_cpu` with its cause in `report()["fallbacks"]`.

    With a `guard`, what is known of this device counts as well, `qnn` is tested in a process of its
    own first, and the guard's mark lies on the disk from before it is opened here until the guard
    is closed.

    `options.threads` becomes torch's thread count of this process as well.

    Raises ValueError for another name.
    """
    options = options or EngineOptions()
    if guard is None:
        name, why = choose_engine(requested)
        choice = Choice(name, options.form, why)
    else:
        choice = guard.choose(requested, options)
    torch.set_num_threads(options.threads)
    matrices = weights.matrices
    if products is not None:
        matrices = {name: matrix for name, matrix in matrices.items() if name in products}
    engine = create_engine("torch_cpu", matrices, options)
    why = choice.why
    if choice.refused is not None:
        engine.ledger.fallback("qnn", choice.refused, None, None)
    elif choice.engine != "torch_cpu":
        options = replace(options, form=choice.form)
        try:
            engine = _open_tested(choice, matrices, engine, options, guard)
        except EngineError as failure:
            why = f"{choice.engine} can't be used: {failure}"
            engine.ledger.fallback(choice.engine, str(failure), None, None)
            if guard is not None:
                guard.close()
    engine.requested = requested
    engine.why = why
    return engine


def _open_tested(
    choice: Choice,
    matrices: Mapping[str, FrozenMatrix],
    fallback: Engine,
    options: EngineOptions,
    guard: EngineGuard | None,
) -> Engine:
    """Create the engine chosen and let it pass its checks. Raises EngineError."""
    from npu.checked_engine import create_checked_engine

    guarded = guard if choice.engine == "qnn" else None
    if guarded is not None:
        guarded.opening("table" if options.form == "auto" else options.form)
    engine = create_checked_engine(choice.engine, matrices, options, fallback=fallback)
    if choice.form_why is not None:
        engine.form_why = choice.form_why
    if guarded is not None:
        guarded.opened(engine.form)
    return engine
