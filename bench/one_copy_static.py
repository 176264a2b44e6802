"""The static pairs that form `table` is compared with: the ordinary way to put a linear on the HTP.

    static_fp16    FusedMatMul on a constant fp16 weight
    static_a16w8   QDQ: 16-bit activations, int8 weight, one scale per output channel of the graph
    static_a16w4   the same with a weight of 4 bits

Each direction is a graph of its own. A QDQ weight has its scales along the graph's own outputs (on
the contraction axis they are silently wrong): forward along N, input gradient along K. So the two
directions of a static QDQ pair don't even read the same effective weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from npu.ledger import Direction
from npu.quantize_blocks import pack

StaticForm = Literal["static_fp16", "static_a16w8", "static_a16w4"]
STATIC_FORMS: tuple[StaticForm, ...] = ("static_fp16", "static_a16w8", "static_a16w4")

_OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
_IR_VERSION = 10
_LARGEST_CODE = {"static_a16w8": 127, "static_a16w4": 7}
_RAILS = 65_535
_MIDDLE = 32_768


@dataclass(frozen=True, eq=False)
class StaticProduct:
    """A graph with input `a` and output `result`, what to feed it and what it should give."""

    model: bytes
    operand: npt.NDArray[Any]
    expected: npt.NDArray[np.float64]


def static_product(
    form: StaticForm, direction: Direction, W: npt.NDArray[np.float32], a: npt.NDArray[np.float32]
) -> StaticProduct:
    """The graph of W [N, K] for rows like `a` fp32 [M, K] (forward) or [M, N], |a| <= 1.

    The result's scale of a QDQ graph is calibrated on the very `a`.
    """
    if form == "static_fp16":
        return _fp16(direction, W, a)
    weight = np.ascontiguousarray(W.T if direction == "forward" else W)  # [inputs, outputs]
    largest_code = _LARGEST_CODE[form]
    scale = np.abs(weight).max(axis=0) / np.float32(largest_code)
    codes = np.clip(np.rint(weight / scale), -largest_code, largest_code).astype(np.int8)
    expected = a.astype(np.float64) @ (codes * scale.astype(np.float64))
    result_step = np.float32(2 * np.abs(expected).max() / _RAILS)
    nodes = [
        *_fake_quantized("a", "a_step", "a_coded"),
        helper.make_node("DequantizeLinear", ["W", "scale", "zeros"], ["W_coded"], axis=1),
        helper.make_node("MatMul", ["a_coded", "W_coded"], ["product"]),
        *_fake_quantized("product", "result_step", "result"),
    ]
    type_ = TensorProto.INT8 if form == "static_a16w8" else TensorProto.INT4
    constants = [
        _codes("W", codes, type_),
        _codes("zeros", np.zeros((1, codes.shape[1]), np.int8), type_, dims=[codes.shape[1]]),
        numpy_helper.from_array(scale, "scale"),
        numpy_helper.from_array(np.array(2 / _RAILS, np.float32), "a_step"),
        numpy_helper.from_array(np.array(result_step), "result_step"),
        numpy_helper.from_array(np.array(_MIDDLE, np.uint16), "middle"),
    ]
    model = _model(nodes, constants, TensorProto.FLOAT, {"a": a.shape}, {"result": expected.shape})
    return StaticProduct(model, a, expected)


def gemm_pair(W: npt.NDArray[np.float16], M: int) -> bytes:
    """Both directions as Gemm on one constant: the small form that is WRONG for a square W."""
    N, K = W.shape
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["y"], transB=1),
        helper.make_node("Gemm", ["dy", "W"], ["dx"], transB=0),
    ]
    return _model(
        nodes,
        [numpy_helper.from_array(W, "W")],
        TensorProto.FLOAT16,
        {"x": (M, K), "dy": (M, N)},
        {"y": (M, N), "dx": (M, K)},
    )


def _fp16(
    direction: Direction, W: npt.NDArray[np.float32], a: npt.NDArray[np.float32]
) -> StaticProduct:
    half, operand = W.astype(np.float16), a.astype(np.float16)
    forward = direction == "forward"
    expected = operand.astype(np.float64) @ (half.T if forward else half).astype(np.float64)
    node = helper.make_node(
        "FusedMatMul", ["a", "W"], ["result"], domain="com.microsoft", transB=int(forward)
    )
    constants = [numpy_helper.from_array(half, "W")]
    shapes = {"a": a.shape}, {"result": expected.shape}
    return StaticProduct(_model([node], constants, TensorProto.FLOAT16, *shapes), operand, expected)


def _fake_quantized(name: str, step: str, result: str) -> list[Any]:
    coded = f"{name}_codes"
    return [
        helper.make_node("QuantizeLinear", [name, step, "middle"], [coded]),
        helper.make_node("DequantizeLinear", [coded, step, "middle"], [result]),
    ]


def _codes(
    name: str, codes: npt.NDArray[np.int8], type_: int, dims: list[int] | None = None
) -> Any:
    if type_ == TensorProto.INT4:
        flat = codes.reshape(1, -1)
        data = pack(np.pad(flat, ((0, 0), (0, flat.size % 2)))).tobytes()
    else:
        data = codes.tobytes()
    return helper.make_tensor(name, type_, dims or list(codes.shape), data, raw=True)


def _model(
    nodes: list[Any],
    constants: list[Any],
    type_: int,
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
) -> bytes:
    def values(shapes: dict[str, tuple[int, ...]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, type_, s) for name, s in shapes.items()]

    graph = helper.make_graph(nodes, "static", values(inputs), values(outputs), constants)
    model = helper.make_model(graph, opset_imports=_OPSETS, ir_version=_IR_VERSION)
    encoded: bytes = model.SerializeToString()
    return encoded
