"""How the pieces of a model lie in tables, and the bytes of a table and its graphs."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.engines.graph_engine import GraphEngine
from npu.forms.form import Piece
from npu.forms.tables import Tables, cut
from npu.frozen_matrix import FrozenMatrix
from npu.graphs_table import TableGraph, build_table_graph
from npu.ledger import Direction
from npu.onnx_attributes import largest_attribute
from npu.quantize import quantize
from npu.quantize_blocks import unpack
from npu.sessions import cpu_sessions
from npu.weight_layout import BLOCK_FORMATS, WeightFormat
from tests.npu.conftest import random_weight

FORMATS = get_args(WeightFormat)


def matrix(name: str, N: int, K: int, format: WeightFormat, seed: int = 0) -> FrozenMatrix:
    quantized = quantize(random_weight(N, K, seed), format)
    return FrozenMatrix(name, format, quantized.codes, quantized.scale, quantized.offset)


def empty(N: int, K: int, format: WeightFormat = "int8") -> FrozenMatrix:
    """A weight of that shape that takes no memory."""
    codes = np.broadcast_to(np.zeros((), np.int8), (N, K // 2 if format in BLOCK_FORMATS else K))
    return FrozenMatrix("m", format, codes, None)


@given(
    N=st.integers(1, 300_000),
    K=st.integers(1, 2000).map(lambda blocks: 32 * blocks),
    format=st.sampled_from(FORMATS),
)
def test_pieces_cover_a_weight_and_none_is_more_than_the_compiler_digests(
    N: int, K: int, format: WeightFormat
) -> None:
    rows, columns = cut(empty(N, K, format))
    for ranges, size in ((rows, N), (columns, K)):
        assert ranges[0].start == 0
        assert ranges[-1].stop == size
        assert all(one.stop == other.start for one, other in pairwise(ranges))
    for row in {(r.stop - r.start) for r in rows}:
        for column in {(c.stop - c.start) for c in columns}:
            assert 0 < row <= 16_384
            assert 0 < column <= 32_768
            assert row * column <= (8192 * 576 if format == "int8" else 1536 * 2048)
            groups = max(g for g in range(1, 65) if row % g == 0)
            assert row * column // groups <= 1 << 19, "wider rows fail: MEM_ALLOC 1002"
            assert format not in BLOCK_FORMATS or column % 32 == 0


@pytest.mark.parametrize(
    ("N", "K", "pieces"),
    [
        pytest.param(49_152, 576, {(8192, 576): 6}, id="SmolLM2's head"),
        pytest.param(576, 1536, {(576, 1536): 1}, id="a linear of SmolLM2"),
        pytest.param(16_384, 2048, {(2048, 2048): 8}, id="Llama-3.2-1B's gate and up"),
        pytest.param(2048, 8192, {(512, 8192): 4}, id="Llama-3.2-1B's down"),
        pytest.param(128_256, 2048, {(2004, 2048): 64}, id="Llama-3.2-1B's head"),
        pytest.param(151_936, 896, {(5248, 896): 28, (4992, 896): 1}, id="Qwen2.5-0.5B's head"),
    ],
)
def test_weights_of_real_models(N: int, K: int, pieces: dict[tuple[int, int], int]) -> None:
    assert shapes(Tables.of([empty(N, K)])) == pieces


def test_pieces_of_fp16_and_of_4_bits_are_smaller() -> None:
    """[2048, 2048] of fp16 fails (MEM_ALLOC 1002), [896, 4864] of 4 bits compiles for minutes."""
    assert shapes(Tables.of([empty(896, 4864, "int4")])) == {(448, 4864): 2}
    assert shapes(Tables.of([empty(49_152, 576, "fp16")])) == {(4096, 576): 12}
    assert shapes(Tables.of([empty(2048, 2048, "fp16")])) == {(1024, 2048): 2}


def shapes(tables: Tables) -> dict[tuple[int, int], int]:
    return {(table.spec.N, table.spec.K): table.spec.entries for table in tables.tables}


def test_one_table_holds_a_shape_of_all_layers_and_formats_lie_apart() -> None:
    layers = {
        f"{layer}.{name}": matrix(f"{layer}.{name}", *shape, format, layer)
        for layer in range(3)
        for name, shape, format in (
            ("qkv", (96, 64), "int8"),
            ("o", (64, 64), "int4"),
            ("down", (64, 96), "int8"),
            ("up", (96, 64), "int4"),
        )
    }
    tables = Tables.of(layers.values())
    assert [table.spec.name for table in tables.tables] == [
        "int8_96x64",
        "int4_64x64",
        "int8_64x96",
        "int4_96x64",
    ]
    for table in tables.tables:
        assert [piece.matrix.name.split(".")[0] for piece in table.pieces] == ["0", "1", "2"]
        for entry, piece in enumerate(table.pieces):
            spec, rows = tables.place(piece)
            assert spec == table.spec
            assert rows.tolist() == list(range(entry * spec.groups, (entry + 1) * spec.groups))


def test_a_matrix_used_twice_lies_in_a_table_once() -> None:
    tied = matrix("embed_tokens", 96, 64, "int8")
    (table,) = Tables.of([tied, matrix("o", 96, 64, "int8", 1), tied]).tables
    assert table.spec.entries == 2


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("direction", get_args(Direction))
def test_graphs_are_valid_and_their_tables_hold_the_weights(
    format: WeightFormat, direction: Direction, tmp_path: Path
) -> None:
    weights = [matrix(str(layer), 6, 64, format, layer) for layer in range(3)]
    (table,) = Tables.of(weights).tables
    graph = TableGraph(table.spec, direction, M=8)
    path = tmp_path / "graph.onnx"
    path.write_bytes(build_table_graph(graph, table.write(tmp_path)))
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    assert model.graph.name == f"{format}_6x64_{direction}_8"
    product = model.graph.node[-1]
    assert (product.op_type, product.domain) == ("FusedMatMul", "com.microsoft")
    assert product.attribute[0].i == (1 if direction == "forward" else 0)
    constants = {constant.name: constant for constant in model.graph.initializer}
    codes = read(constants[f"{format}_6x64_codes"]).reshape(3, 6, 64)
    for layer, weight in enumerate(weights):
        stored = unpack(weight.codes) if format in BLOCK_FORMATS else weight.codes
        assert np.array_equal(codes[layer], stored)
        for part in table.spec.parts[1:]:
            values = read(constants[f"{format}_6x64_{part}"]).reshape(3, 6, 2)
            assert np.array_equal(values[layer], getattr(weight, part))
    small = len(path.read_bytes())
    assert small < 3000, "the table is beside the model, not in it"


def read(constant: onnx.TensorProto) -> np.ndarray[Any, Any]:
    array = onnx.numpy_helper.to_array(constant)
    return array.astype(np.int8) if array.dtype.name == "int4" else array


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_on_the_cpu_stays_the_codes_it_is(
    format: WeightFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding constants would expand it to fp32: what onnxruntime runs is asked of it."""
    import onnxruntime

    optimised = tmp_path / "optimised.onnx"
    options_of = onnxruntime.SessionOptions

    def options() -> Any:
        made = options_of()
        made.optimized_model_filepath = str(optimised)
        return made

    weights = {str(layer): matrix(str(layer), 96, 64, format, layer) for layer in range(2)}
    (table,) = Tables.of(weights.values()).tables
    path = tmp_path / "graph.onnx"
    graph = TableGraph(table.spec, "forward", M=8)
    path.write_bytes(build_table_graph(graph, table.write(tmp_path)))
    monkeypatch.setattr(onnxruntime, "SessionOptions", options)
    cpu_sessions(1, keep_codes=True)(path)
    largest = max(onnx.load(str(optimised)).graph.initializer, key=lambda c: np.prod(c.dims))
    expected = {"fp16": "FLOAT16", "int8": "INT8", "int4": "INT4", "int4_min": "INT4"}[format]
    assert onnx.TensorProto.DataType.Name(largest.data_type) == expected
    assert np.prod(largest.dims) == 2 * 96 * 64


def test_close_removes_the_tables_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    weights = {"m": matrix("m", 96, 64, "int8")}
    engine = create_engine("onnx_cpu", weights, EngineOptions(form="table"))
    assert isinstance(engine, GraphEngine)
    engine.graphs.run(
        Piece(weights["m"], slice(0, 96), slice(0, 64)), "forward", np.ones((8, 64), np.float16)
    )
    assert list(tmp_path.rglob("*.table"))
    engine.close()
    assert not list(tmp_path.iterdir())


@given(values=st.lists(st.integers(0, 2**62), max_size=4), other=st.integers(0, 2**62))
def test_an_attribute_is_read_as_onnx_wrote_it(values: list[int], other: int) -> None:
    nodes = [
        onnx.helper.make_node("EPContext", ["x"], ["y"], max_size=value, main_context=other)
        for value in values
    ]
    nodes.append(onnx.helper.make_node("Other", [], ["z"], scale=1.5, text="max_size"))
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], []))
    encoded = model.SerializeToString()
    assert largest_attribute(encoded, "max_size") == max(values, default=0)
    assert largest_attribute(encoded, "absent") == 0


@given(content=st.binary(max_size=60))
def test_other_bytes_are_refused_or_hold_nothing(content: bytes) -> None:
    with suppress(ValueError):
        assert largest_attribute(content, "max_size") == 0
