"""Writing ONNX models without the `onnx` package, which does not exist on the phone.

An ONNX model is a protobuf message (onnx/onnx.proto). On the wire a message is a sequence of
fields, each a key (field number << 3 | wire type) and a value: wire type 0 is a varint, wire
type 2 a length and that many bytes (strings, nested messages, raw data). Nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

ElementType = Literal["float16", "float32", "int4", "int8", "int32", "int64", "uint16"]

_ELEMENT_TYPES: Mapping[ElementType, int] = {
    "float16": 10,
    "float32": 1,
    "int4": 22,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "uint16": 4,
}
_INT_ATTRIBUTE = 2
_EXTERNAL = 1
_IR_VERSION = 10
"""The IR of opset 21, onnx 1.16."""


@dataclass(frozen=True)
class Value:
    """A typed graph input or output of static shape."""

    name: str
    element_type: ElementType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class FilePart:
    """Bytes of a file in the model's own folder: not copied into the model, and not read twice."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class Constant:
    """An initializer: its raw little-endian bytes, int4 two a byte; shape () is a scalar."""

    name: str
    element_type: ElementType
    shape: tuple[int, ...]
    data: bytes | FilePart


@dataclass(frozen=True)
class Node:
    """An operator with integer attributes; domain "" is ONNX's own."""

    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    domain: str = ""
    attributes: Mapping[str, int] = field(default_factory=dict)


def encode_model(
    *,
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Sequence[Constant],
    opsets: Mapping[str, int],
) -> bytes:
    """The bytes of a ModelProto; equal arguments give equal bytes."""
    graph = b"".join(
        [
            *(_bytes(1, _node(node)) for node in nodes),
            _text(2, name),
            *(_bytes(5, _tensor(constant)) for constant in constants),
            *(_bytes(11, _value(value)) for value in inputs),
            *(_bytes(12, _value(value)) for value in outputs),
        ]
    )
    return b"".join(
        [
            _integer(1, _IR_VERSION),
            _text(2, "lorad"),
            _bytes(7, graph),
            *(
                _bytes(8, _text(1, domain) + _integer(2, version))
                for domain, version in opsets.items()
            ),
        ]
    )


def _node(node: Node) -> bytes:
    return b"".join(
        [
            *(_text(1, name) for name in node.inputs),
            *(_text(2, name) for name in node.outputs),
            _text(4, node.operator),
            *(
                _bytes(5, _text(1, name) + _integer(3, value) + _integer(20, _INT_ATTRIBUTE))
                for name, value in node.attributes.items()
            ),
            _text(7, node.domain),
        ]
    )


def _tensor(constant: Constant) -> bytes:
    return b"".join(
        [
            *(_integer(1, size) for size in constant.shape),
            _integer(2, _ELEMENT_TYPES[constant.element_type]),
            _text(8, constant.name),
            _data(constant.data),
        ]
    )


def _data(data: bytes | FilePart) -> bytes:
    if isinstance(data, bytes):
        return _bytes(9, data)
    entries = {"location": data.file, "offset": str(data.offset), "length": str(data.length)}
    return b"".join(
        [
            *(_bytes(13, _text(1, key) + _text(2, value)) for key, value in entries.items()),
            _integer(14, _EXTERNAL),
        ]
    )


def _value(value: Value) -> bytes:
    shape = b"".join(_bytes(1, _integer(1, size)) for size in value.shape)
    tensor_type = _integer(1, _ELEMENT_TYPES[value.element_type]) + _bytes(2, shape)
    return _text(1, value.name) + _bytes(2, _bytes(1, tensor_type))


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode("utf-8"))


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, lowest first, the high bit set on all but the last."""
    if value < 0:
        raise ValueError(f"expected a number of 0 or more, found {value}: ours are never negative")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
