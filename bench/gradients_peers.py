"""How others feed gradients to a half-precision engine, on the same engine and weights as ours.

Each takes fp32 rows and the fp16 weight, gives fp32 rows back, and differs from ours only in what
becomes of the rows' sizes:

    none          rounded to fp16 as they are
    fp32_io       a graph with fp32 inputs and outputs
    global_scale  divided by one power of two for the whole matrix
    loss_scale    dy multiplied by a constant 2**16 (what mixed-precision training does), x as it is
    in_graph      each row divided by its largest entry inside the graph, in "fp32"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.sessions import HtpSessions, Session, cpu_sessions

Peer = Literal["none", "fp32_io", "global_scale", "loss_scale", "in_graph"]
PEERS: tuple[Peer, ...] = get_args(Peer)

_LOSS_SCALE = np.float32(2.0**16)
Rows = npt.NDArray[np.float32]


class PeerEngine(Engine):
    """Frozen products as a peer would compute them; no padding, no repeats, no fallback."""

    name: ClassVar[EngineName] = "qnn"
    form = "inputs"

    def __init__(
        self,
        peer: Peer,
        provider: EngineName,
        matrices: Mapping[str, FrozenMatrix],
        options: EngineOptions,
    ) -> None:
        """`provider` is the engine whose sessions run the peer's graphs."""
        super().__init__(matrices, options)
        self._peer = peer
        self._open: Callable[[bytes], Session] = (
            HtpSessions() if provider == "qnn" else cpu_sessions(options.threads)
        )
        self._sessions: dict[bytes, Session] = {}
        self._weights: dict[str, npt.NDArray[Any]] = {}

    @property
    def device(self) -> str:
        return self._peer

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        if matrix.name not in self._weights:
            self._weights[matrix.name] = matrix.dequantize().astype(np.float16)
        W, rows = self._weights[matrix.name], a.numpy()
        scale = self._scale(direction, rows)
        with np.errstate(over="ignore"):
            result = self._run(W, direction, rows * scale) / scale
        return torch.from_numpy(result)

    def _scale(self, direction: Direction, rows: Rows) -> np.float32:
        if self._peer == "loss_scale" and direction == "input_gradient":
            return _LOSS_SCALE
        if self._peer == "global_scale":
            return np.float32(2.0 ** -np.frexp(np.abs(rows).max())[1])
        return np.float32(1)

    def _run(self, W: npt.NDArray[np.float16], direction: Direction, rows: Rows) -> Rows:
        model = _graph(self._peer, direction, W.shape, rows.shape)
        if model not in self._sessions:
            self._sessions[model] = self._open(model)
        fp32 = self._peer in ("fp32_io", "in_graph")
        with np.errstate(over="ignore"):
            operand = rows if fp32 else rows.astype(np.float16)
        weight = W.astype(np.float32) if self._peer == "fp32_io" else W
        (result,) = self._sessions[model].run(None, {"a": operand, "W": weight})
        return np.asarray(result, dtype=np.float32)


def _graph(
    peer: Peer, direction: Direction, weight: tuple[int, ...], rows: tuple[int, ...]
) -> bytes:
    forward = direction == "forward"
    N, K = weight
    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    outside = single if peer in ("fp32_io", "in_graph") else half
    inside = single if peer == "fp32_io" else half
    constants: list[onnx.TensorProto] = []
    operand, product = "a", "result"
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    if peer == "in_graph":
        constants = [
            numpy_helper.from_array(np.array([1]), "axis"),
            numpy_helper.from_array(np.array(1e-30, np.float32), "tiny"),
        ]
        before = [
            helper.make_node("Abs", ["a"], ["sizes"]),
            helper.make_node("ReduceMax", ["sizes", "axis"], ["largest"], keepdims=1),
            helper.make_node("Max", ["largest", "tiny"], ["scale"]),
            helper.make_node("Div", ["a", "scale"], ["scaled"]),
            helper.make_node("Cast", ["scaled"], ["operand"], to=half),
        ]
        after = [
            helper.make_node("Cast", ["product"], ["product32"], to=single),
            helper.make_node("Mul", ["product32", "scale"], ["result"]),
        ]
        operand, product = "operand", "product"
    nodes = [
        *before,
        helper.make_node(
            "FusedMatMul",
            [operand, "W"],
            [product],
            domain="com.microsoft",
            transB=1 if forward else 0,
        ),
        *after,
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        peer,
        [value("a", outside, rows), value("W", inside, weight)],
        [value("result", outside, [rows[0], N if forward else K])],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model
