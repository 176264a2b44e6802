"""The engines by name, and which one `auto` means on this machine; loads nothing that computes."""

from __future__ import annotations

from typing import Literal, get_args

from npu.htp import find_snapdragon

EngineName = Literal["qnn", "onnx_cpu", "torch_cpu"]
RequestedEngine = Literal["auto", "qnn", "onnx_cpu", "torch_cpu"]


def choose_engine(requested: RequestedEngine) -> tuple[EngineName, str]:
    """The engine meant by `requested` on this machine, and why.

    `auto` is `qnn` on a real Snapdragon and `torch_cpu` elsewhere; the x86 emulator runs only when
    `qnn` is asked for by name. Raises ValueError for another name.
    """
    if requested not in get_args(RequestedEngine):
        raise ValueError(
            f"expected an engine of {', '.join(get_args(RequestedEngine))}, found {requested!r}: "
            "choose one of them"
        )
    if requested != "auto":
        return requested, "asked for by name"
    snapdragon = find_snapdragon()
    if snapdragon.found:
        return "qnn", snapdragon.reason
    return "torch_cpu", f"no Snapdragon NPU to use here: {snapdragon.reason}"
