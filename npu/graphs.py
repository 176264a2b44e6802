"""Graphs of form `inputs`: the weight is a graph INPUT, read in its stored order.

    W int8 [N, K] ── DequantizeLinear(scale 2**-7, zero point 0) ──┐
    (or W fp16 [N, K] ─────────────────────────────────────────────┤)
                                                                   ├─ FusedMatMul ── result fp16
    a fp16 [M, K] or [M, N] ───────────────────────────────────────┘   transB=1: y  = a W^T [M, N]
                                                                       transB=0: dx = a W   [M, K]

Why this and nothing simpler, measured on Qualcomm's emulator: MatMul, Gemm or Conv on a static
weight are packed once per direction (two copies), and Gemm or Conv pairs are silently wrong;
per-channel scales in the graph are refused, or silently wrong for dx; fp32 tensors are fp16 inside
and overflow to finite garbage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from npu.ledger import Direction
from npu.onnx_format import Constant, ElementType, Node, Value, encode_model
from npu.quantize import CODE_STEP

OPERAND = "a"
WEIGHT = "W"
RESULT = "result"

InputFormat = Literal["int8", "fp16"]
"""What a weight that is a graph's input can be."""

_OPSETS = {"": 21, "com.microsoft": 1}


@dataclass(frozen=True)
class GraphSpec:
    """A static graph, shared by all weights of one shape: [N, K], M rows, one direction."""

    format: InputFormat
    direction: Direction
    N: int
    K: int
    M: int

    @property
    def operand_shape(self) -> tuple[int, int]:
        """Shape of the fp16 operand: [M, K] forward, [M, N] for the input gradient."""
        return (self.M, self.K if self.direction == "forward" else self.N)

    @property
    def result_shape(self) -> tuple[int, int]:
        """Shape of the fp16 result: [M, N] forward, [M, K] for the input gradient."""
        return (self.M, self.N if self.direction == "forward" else self.K)


def build_graph(spec: GraphSpec) -> bytes:
    """The ONNX model of `spec`, with inputs OPERAND and WEIGHT and the output RESULT."""
    weight_type: ElementType = "int8" if spec.format == "int8" else "float16"
    nodes: list[Node] = []
    constants: list[Constant] = []
    weight = WEIGHT
    if spec.format == "int8":
        weight = "W_fp16"
        nodes.append(Node("DequantizeLinear", [WEIGHT, "step", "zero"], [weight]))
        constants = [
            Constant("step", "float16", (), struct.pack("<e", CODE_STEP)),
            Constant("zero", "int8", (), bytes(1)),
        ]
    nodes.append(
        Node(
            "FusedMatMul",
            [OPERAND, weight],
            [RESULT],
            domain="com.microsoft",
            attributes={"transB": _trans_b(spec.direction)},
        )
    )
    return encode_model(
        name=spec.direction,
        nodes=nodes,
        inputs=[
            Value(OPERAND, "float16", spec.operand_shape),
            Value(WEIGHT, weight_type, (spec.N, spec.K)),
        ],
        outputs=[Value(RESULT, "float16", spec.result_shape)],
        constants=constants,
        opsets=_OPSETS,
    )


def _trans_b(direction: Direction) -> int:
    return 1 if direction == "forward" else 0
