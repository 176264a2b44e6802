"""Graphs of form `table`: the weights of many pieces lie in ONE static table inside the graph.

    table [entries * groups, N * K / groups]      index int32 [groups]: the rows of one entry
      codes ─── DequantizeLinear ─ Gather(index) ─ QuantizeLinear ─ DequantizeLinear ─┐
      fp16  ─── Gather(index) ────────────────────────────────────────────────────────┤
                                                                                      │
      int4:     Reshape [N, K/32, 32] ── Mul ─┬─ (Add) ─┬─ Reshape [N, K] ────────────┤ Reshape
      scale  ── Gather(index) ── Reshape ─────┘         │                             │ [N, K]
      offset ── Gather(index) ── Reshape ───────────────┘                             │
                                                                                      ├─ FusedMatMul
    a fp16 [M, K] or [M, N] ──────────────────────────────────────────────────────────┘  as in
                                                                                         graphs.py

What the index picks is known only when the graph runs, so the compiler can't pack the table for one
direction: the graphs of both directions, and of every M, read the same bytes. The first three
nodes of a table of codes cancel out: written that way the compiler gathers the codes as they are,
and dequantises the gathered part only (a bare Gather of codes is refused). int8 codes are
multiplied by 2**-7, their scale per output channel stays on the host; int4 by 1 and then, in fp16,
by the scale of their block. Scales are gathered too: as plain constants they are padded fourfold.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from npu.graphs import OPERAND, RESULT
from npu.ledger import Direction
from npu.onnx_format import Constant, ElementType, FilePart, Node, Value, encode_model
from npu.quantize import CODE_STEP
from npu.weight_layout import BLOCK, BLOCK_FORMATS, WeightFormat

INDEX = "index"

Part = Literal["codes", "scale", "offset"]
"""The constants of a table; which there are depends on the format."""

_OPSETS = {"": 21, "com.microsoft": 1}
_ELEMENTS: Mapping[WeightFormat, ElementType] = {
    "fp16": "float16",
    "int8": "int8",
    "int4": "int4",
    "int4_min": "int4",
}
_MOST_GROUPS = 64
"""Rows of a table that make up one entry. One row an entry would do on paper; a row of more than
about a million elements makes the compiler run out of memory, and so do hundreds of rows."""


@dataclass(frozen=True)
class TableSpec:
    """A static table: `entries` weights [N, K] of one format."""

    format: WeightFormat
    N: int
    K: int
    entries: int

    @property
    def name(self) -> str:
        """Different for each table of a model."""
        return f"{self.format}_{self.N}x{self.K}"

    @property
    def groups(self) -> int:
        """Rows of the table for one entry."""
        return groups(self.N)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The constants the table is made of."""
        if self.format == "int4_min":
            return ("codes", "scale", "offset")
        return ("codes", "scale") if self.format == "int4" else ("codes",)

    def part_shape(self, part: Part) -> tuple[int, int]:
        """Shape of a constant, in elements."""
        per_entry = self.N * (self.K if part == "codes" else self.K // BLOCK)
        return (self.entries * self.groups, per_entry // self.groups)


@dataclass(frozen=True)
class TableGraph:
    """A static graph that multiplies by any entry of a table: M rows, one direction."""

    table: TableSpec
    direction: Direction
    M: int

    @property
    def name(self) -> str:
        """Different for each graph of a model."""
        return f"{self.table.name}_{self.direction}_{self.M}"

    @property
    def operand_shape(self) -> tuple[int, int]:
        """Shape of the fp16 operand: [M, K] forward, [M, N] for the input gradient."""
        return (self.M, self.table.K if self.direction == "forward" else self.table.N)

    @property
    def result_shape(self) -> tuple[int, int]:
        """Shape of the fp16 result: [M, N] forward, [M, K] for the input gradient."""
        return (self.M, self.table.N if self.direction == "forward" else self.table.K)


def groups(N: int) -> int:
    """The largest divisor of `N` that is at most 64."""
    return next(g for g in range(min(N, _MOST_GROUPS), 0, -1) if N % g == 0)


def build_table_graph(graph: TableGraph, data: Mapping[Part, FilePart]) -> bytes:
    """The ONNX model of `graph`, with inputs OPERAND and INDEX and the output RESULT.

    `data` says where the constants of its table lie.
    """
    table = graph.table
    nodes, constants = _weight(table, data)
    nodes.append(
        Node(
            "FusedMatMul",
            [OPERAND, "W"],
            [RESULT],
            domain="com.microsoft",
            attributes={"transB": 1 if graph.direction == "forward" else 0},
        )
    )
    return encode_model(
        name=graph.name,
        nodes=nodes,
        inputs=[
            Value(OPERAND, "float16", graph.operand_shape),
            Value(INDEX, "int32", (table.groups,)),
        ],
        outputs=[Value(RESULT, "float16", graph.result_shape)],
        constants=constants,
        opsets=_OPSETS,
    )


def _weight(table: TableSpec, data: Mapping[Part, FilePart]) -> tuple[list[Node], list[Constant]]:
    """From the table to the fp16 weight "W" [N, K]."""
    N, K = table.N, table.K
    element = _ELEMENTS[table.format]
    constants = [
        Constant(
            _constant(table, part),
            element if part == "codes" else "float16",
            table.part_shape(part),
            data[part],
        )
        for part in table.parts
    ]
    constants.append(_shape("matrix", N, K))
    codes = _constant(table, "codes")
    if table.format == "fp16":
        nodes = [
            Node("Gather", [codes, INDEX], ["gathered"], attributes={"axis": 0}),
            Node("Reshape", ["gathered", "matrix"], ["W"]),
        ]
        return nodes, constants
    step = CODE_STEP if table.format == "int8" else 1.0
    constants += [
        Constant("step", "float16", (), struct.pack("<e", step)),
        Constant("zero", element, (), bytes(1)),
    ]
    nodes = [
        Node("DequantizeLinear", [codes, "step", "zero"], ["table"]),
        Node("Gather", ["table", INDEX], ["gathered"], attributes={"axis": 0}),
        Node("QuantizeLinear", ["gathered", "step", "zero"], ["gathered_codes"]),
        Node("DequantizeLinear", ["gathered_codes", "step", "zero"], ["values"]),
    ]
    values = "values"
    if table.format in BLOCK_FORMATS:
        constants += [
            _shape("blocks", N, K // BLOCK, BLOCK),
            _shape("per_block", N, K // BLOCK, 1),
        ]
        nodes.append(Node("Reshape", [values, "blocks"], ["value_blocks"]))
        nodes += _per_block(table, "scale", "Mul", "value_blocks", "scaled")
        values = "scaled"
        if table.format == "int4_min":
            nodes += _per_block(table, "offset", "Add", "scaled", "shifted")
            values = "shifted"
    nodes.append(Node("Reshape", [values, "matrix"], ["W"]))
    return nodes, constants


def _per_block(table: TableSpec, part: Part, operator: str, values: str, result: str) -> list[Node]:
    """`operator` on the blocks `values` and the gathered `part` of the table."""
    return [
        Node("Gather", [_constant(table, part), INDEX], [f"{part}_rows"], attributes={"axis": 0}),
        Node("Reshape", [f"{part}_rows", "per_block"], [part]),
        Node(operator, [values, part], [result]),
    ]


def _constant(table: TableSpec, part: Part) -> str:
    """A name of its own in the context that all graphs share."""
    return f"{table.name}_{part}"


def _shape(name: str, *sizes: int) -> Constant:
    return Constant(name, "int64", (len(sizes),), struct.pack(f"<{len(sizes)}q", *sizes))
