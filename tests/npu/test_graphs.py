"""The ONNX bytes we write ourselves, read by the real `onnx` package and run by onnxruntime."""

from __future__ import annotations

from typing import get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from npu.graphs import OPERAND, RESULT, WEIGHT, GraphSpec, build_graph
from npu.ledger import Direction
from npu.onnx_format import Constant, Node, Value, encode_model
from npu.weight_layout import WeightFormat

SPECS = [
    GraphSpec(format, direction, N=48, K=80, M=32)
    for format in get_args(WeightFormat)
    for direction in get_args(Direction)
]


def spec_id(spec: GraphSpec) -> str:
    return f"{spec.format}-{spec.direction}"


def by_onnx(spec: GraphSpec) -> onnx.ModelProto:
    """The same graph, written by hand with onnx.helper."""
    forward = spec.direction == "forward"
    int8 = spec.format == "int8"
    nodes = [
        helper.make_node(
            "FusedMatMul",
            [OPERAND, "W_fp16" if int8 else WEIGHT],
            [RESULT],
            domain="com.microsoft",
            transB=1 if forward else 0,
        )
    ]
    constants = []
    if int8:
        nodes.insert(0, helper.make_node("DequantizeLinear", [WEIGHT, "step", "zero"], ["W_fp16"]))
        constants = [
            onnx.numpy_helper.from_array(np.array(2**-7, np.float16), "step"),
            onnx.numpy_helper.from_array(np.array(0, np.int8), "zero"),
        ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        spec.direction,
        [
            value(OPERAND, TensorProto.FLOAT16, [32, 80 if forward else 48]),
            value(WEIGHT, TensorProto.INT8 if int8 else TensorProto.FLOAT16, [48, 80]),
        ],
        [value(RESULT, TensorProto.FLOAT16, [32, 48 if forward else 80])],
        constants,
    )
    return helper.make_model(
        graph,
        ir_version=10,
        producer_name="lorad",
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
    )


@pytest.mark.parametrize("spec", SPECS, ids=spec_id)
def test_graphs_are_what_onnx_itself_would_write(spec: GraphSpec) -> None:
    model = onnx.load_model_from_string(build_graph(spec))
    onnx.checker.check_model(model, full_check=True)
    expected = by_onnx(spec)
    for node in (*model.graph.node, *expected.graph.node):
        node.ClearField("domain") if not node.domain else None
    assert model == expected


@pytest.mark.parametrize("spec", SPECS, ids=spec_id)
def test_graphs_compute_the_product(spec: GraphSpec) -> None:
    generator = np.random.default_rng(0)
    operand = generator.standard_normal(spec.operand_shape).astype(np.float16)
    if spec.format == "int8":
        weight = generator.integers(-127, 128, (spec.N, spec.K)).astype(np.int8)
        effective = weight / 128
    else:
        weight = generator.standard_normal((spec.N, spec.K)).astype(np.float16)
        effective = weight.astype(np.float64)
    session = onnxruntime.InferenceSession(build_graph(spec), providers=["CPUExecutionProvider"])
    (result,) = session.run([RESULT], {OPERAND: operand, WEIGHT: weight})
    matrix = effective.T if spec.direction == "forward" else effective
    expected = operand.astype(np.float64) @ matrix
    assert result.dtype == np.float16
    # the result's own rounding to fp16, 2**-11, and nothing else of that size
    assert np.linalg.norm(result - expected) / np.linalg.norm(expected) < 2**-11


@pytest.mark.parametrize("spec", SPECS, ids=spec_id)
def test_no_weight_is_stored_in_a_graph(spec: GraphSpec) -> None:
    """Static weights are packed once per direction by the HTP: two resident copies."""
    model = onnx.load_model_from_string(build_graph(spec))
    assert {constant.name for constant in model.graph.initializer} <= {"step", "zero"}
    assert all(not constant.dims for constant in model.graph.initializer)
    assert [tensor.name for tensor in model.graph.input] == [OPERAND, WEIGHT]


sizes = st.integers(0, 2**62)


@given(
    shape=st.lists(sizes, max_size=4),
    name=st.text(max_size=200),
    data=st.binary(max_size=300),
    number=sizes,
)
def test_any_size_name_and_data_survive_the_wire(
    shape: list[int], name: str, data: bytes, number: int
) -> None:
    model = onnx.load_model_from_string(
        encode_model(
            name=name,
            nodes=[Node("Op", [name, "b"], [name], domain=name, attributes={"a": number})],
            inputs=[Value(name, "float16", tuple(shape))],
            outputs=[Value("out", "int8", ())],
            constants=[Constant(name, "int8", tuple(shape), data)],
            opsets={name: number},
        )
    )
    graph = model.graph
    assert graph.name == name
    assert graph.node[0].op_type == "Op"
    assert list(graph.node[0].input) == [name, "b"]
    assert list(graph.node[0].output) == [name]
    assert graph.node[0].domain == name
    assert graph.node[0].attribute[0].i == number
    assert graph.node[0].attribute[0].type == onnx.AttributeProto.INT
    assert graph.initializer[0].name == name
    assert list(graph.initializer[0].dims) == shape
    assert graph.initializer[0].raw_data == data
    assert [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == shape
    assert graph.output[0].type.tensor_type.HasField("shape")
    assert (model.opset_import[0].domain, model.opset_import[0].version) == (name, number)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="found -1"):
        encode_model(name="", nodes=[], inputs=[], outputs=[], constants=[], opsets={"": -1})
