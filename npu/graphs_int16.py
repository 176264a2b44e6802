"""The graph of a 16-bit integer product: 16-bit codes in and out, the int8 weight as it is stored.

    a uint16 [M, K] ── DequantizeLinear(2**-15) ─┐
                                                 ├─ Gemm, transB=1 ── QuantizeLinear(range 2**-15)
    W int8 [N, K] ──── DequantizeLinear(2**-7) ──┘                       result uint16 [M, N]

A uint16 code c stands for (c - 32768) times its step. Quantised on all three sides, the product is
one integer MatMul on the NPU: on Qualcomm's emulator 99.9 % of the codes are those of float64, the
others one off, sums of 2**37 don't wrap, and what lies outside of the range becomes the code at its
end. As a FusedMatMul the same graph is computed in fp16. Forward only: dy stays fp16.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from npu.graphs import OPERAND, RESULT, WEIGHT
from npu.onnx_format import Constant, Node, Value, encode_model
from npu.quantize import CODE_STEP
from npu.rows import CODE_ZERO, OPERAND_STEP

_RANGE = 0.25
"""In units of sqrt(K). A protected row of activations has entries below 1 and codes stand for
weights below 1; in SmolLM2-135M the largest result of a row is at 0.05 to 0.11 sqrt(K) as a rule
and at 1.6 sqrt(K) once. At 1/4, 2 % of the rows (in 15 % of the products) are beyond it and
computed again; at 1/8 a fifth are, and at 1/2 all lose a bit more."""


def result_step(K: int) -> float:
    """What one code of a result stands for, after K terms."""
    return _RANGE * math.sqrt(K) * OPERAND_STEP


@dataclass(frozen=True)
class Int16Spec:
    """A static graph y = a W^T, shared by all int8 weights [N, K], for M rows."""

    N: int
    K: int
    M: int


def build_int16_graph(spec: Int16Spec) -> bytes:
    """The ONNX model of `spec`, with inputs OPERAND and WEIGHT and the output RESULT."""
    return encode_model(
        name="forward_int16",
        nodes=[
            Node("DequantizeLinear", [OPERAND, "operand_step", "zero"], ["a_real"]),
            Node("DequantizeLinear", [WEIGHT, "weight_step", "weight_zero"], ["W_real"]),
            Node("Gemm", ["a_real", "W_real"], ["y"], attributes={"transB": 1}),
            Node("QuantizeLinear", ["y", "result_step", "zero"], [RESULT]),
        ],
        inputs=[
            Value(OPERAND, "uint16", (spec.M, spec.K)),
            Value(WEIGHT, "int8", (spec.N, spec.K)),
        ],
        outputs=[Value(RESULT, "uint16", (spec.M, spec.N))],
        constants=[
            _scalar("operand_step", OPERAND_STEP),
            _scalar("weight_step", CODE_STEP),
            _scalar("result_step", result_step(spec.K)),
            Constant("zero", "uint16", (), struct.pack("<H", CODE_ZERO)),
            Constant("weight_zero", "int8", (), bytes(1)),
        ],
        opsets={"": 21},
    )


def _scalar(name: str, value: float) -> Constant:
    return Constant(name, "float32", (), struct.pack("<f", value))
