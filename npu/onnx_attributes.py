"""Reading integer attributes out of an ONNX model without the `onnx` package; see onnx_format.py.

All there is to read: the numbers that onnxruntime-qnn writes beside a compiled context.
"""

from __future__ import annotations

from collections.abc import Iterator

_GRAPH = 7
_NODE = 1
_ATTRIBUTE = 5
_NAME = 1
_INTEGER = 3

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def largest_attribute(model: bytes, name: str) -> int:
    """The largest value of the integer attribute `name` of any node; 0 if no node has it.

    Raises ValueError for bytes that are no protobuf message.
    """
    values = [0]
    for graph in _messages(model, _GRAPH):
        for node in _messages(graph, _NODE):
            for attribute in _messages(node, _ATTRIBUTE):
                fields = dict(_fields(attribute))
                value = fields.get(_INTEGER, 0)
                if fields.get(_NAME) == name.encode() and isinstance(value, int):
                    values.append(value)
    return max(values)


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    for found, value in _fields(message):
        if found == number and isinstance(value, bytes):
            yield value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field; numbers of fixed width, which we never need, as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire_type == _LENGTH:
            length, at = _varint(message, at)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"expected a protobuf field, found wire type {wire_type} at {at}")
        if at + length > len(message):
            raise ValueError(f"expected {length} bytes at {at}, found the end: a cut-off model")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError(f"expected a number at {at}, found the end: a cut-off model")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
