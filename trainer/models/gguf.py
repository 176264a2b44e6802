"""A strict reader of GGUF v3 files, mapped read-only.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (little endian)

    magic "GGUF" | version u32 | tensor count u64 | key count u64
    key-value pairs: key string | type u32 | value
    tensor infos:    name string | n_dims u32 | dims u64[n_dims] | type u32 | offset u64
    padding to general.alignment (32) | tensor data

A string is its length in bytes (u64) and UTF-8. Dimensions come fastest first, so numpy's shape is
their reverse. Everything a file claims is checked against its size before it is used.
"""

import itertools
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.models.gguf_blocks import BLOCKS, TYPE_NAMES, dequantize

_MAGIC = b"GGUF"
_VERSION = 3
_MOST_DIMENSIONS = 4
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    _BOOL: "<B",
    10: "<Q",
    11: "<q",
    12: "<d",
}


class GGUFError(ValueError):
    """A GGUF file is malformed, truncated or of a kind we don't read; names the key or tensor."""


@dataclass(frozen=True)
class GGUFTensor:
    """Where a tensor lies: `shape` in numpy's order, ggml's `type`, `start` as a file offset."""

    name: str
    shape: tuple[int, ...]
    type: int
    start: int
    size: int


class GGUFFile:
    """An open GGUF file: `metadata` by key, `tensors` by name, data loaded on demand."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]

    def __init__(self, path: Path) -> None:
        """Map the file and check all of its description.

        Raises GGUFError naming what is wrong, OSError if the file can't be read.
        """
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise GGUFError(f"{path.name} is empty; expected a GGUF file")
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        cursor = _Cursor(self._mapped)
        tensor_count, key_count = _read_header(cursor, path.name)
        self.metadata = MappingProxyType(_read_metadata(cursor, key_count))
        self.tensors = MappingProxyType(_read_tensors(cursor, tensor_count, self._alignment()))

    def load(self, name: str) -> npt.NDArray[np.float32]:
        """The values of a tensor as fp32 in its shape, dequantised.

        Raises KeyError for an unknown name.
        """
        tensor = self.tensors[name]
        return dequantize(self.raw(name), tensor.type).reshape(tensor.shape)

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor as the file has them: a read-only view.

        Raises KeyError for an unknown name.
        """
        tensor = self.tensors[name]
        return np.frombuffer(self._mapped, np.uint8, tensor.size, tensor.start)

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
            raise GGUFError(
                f"general.alignment is {alignment!r}; expected a power of two of at least 8"
            )
        return alignment


class _Cursor:
    """A position in the file; every read names what it is for and can't leave the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise GGUFError(
                f"{what}: expected {size} bytes at offset {self.position}, the file has "
                f"{self.left} left; it is truncated or damaged"
            )
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken

    def number(self, form: str, what: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def count(self, smallest_item: int, what: str) -> int:
        """How many items follow, refused if that many can't fit in the rest of the file."""
        count: int = self.number("<Q", what)
        if count * smallest_item > self.left:
            raise GGUFError(
                f"{what} is {count}, more than the file's remaining {self.left} bytes can hold; "
                "it is truncated or damaged"
            )
        return count

    def string(self, what: str) -> str:
        length = self.count(1, f"length of {what}")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise GGUFError(f"{what} is not valid UTF-8 ({error.reason})") from error


def _read_header(cursor: _Cursor, file_name: str) -> tuple[int, int]:
    """Tensor count and key count, after checking magic and version."""
    magic = cursor.take(4, "the magic number")
    if magic != _MAGIC:
        raise GGUFError(f"{file_name} begins with {magic!r}; expected {_MAGIC!r}, a GGUF file")
    version = cursor.number("<I", "the version")
    if version != _VERSION:
        hint = " (a big-endian file)" if version == _VERSION << 24 else ""
        raise GGUFError(f"GGUF version is {version}{hint}; this version reads only {_VERSION}")
    # a tensor info is at least 8 + 4 + 8 + 4 + 8 bytes, a key-value pair 8 + 4 + 1
    tensor_count = cursor.count(32, "the tensor count")
    return tensor_count, cursor.count(13, "the key count")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.string(f"key {index}")
        if key in metadata:
            raise GGUFError(f"key {key!r} occurs twice")
        metadata[key] = _read_value(cursor, cursor.number("<I", f"type of {key}"), key)
    return metadata


def _read_value(cursor: _Cursor, kind: int, key: str) -> Any:
    if kind == _STRING:
        return cursor.string(key)
    if kind == _ARRAY:
        return _read_array(cursor, key)
    if kind not in _SCALARS:
        raise GGUFError(f"{key} has value type {kind}, which GGUF v3 doesn't define")
    value = cursor.number(_SCALARS[kind], key)
    if kind == _BOOL:
        if value > 1:
            raise GGUFError(f"{key} is a boolean with the value {value}; expected 0 or 1")
        return bool(value)
    return value


def _read_array(cursor: _Cursor, key: str) -> list[Any]:
    kind = cursor.number("<I", f"item type of {key}")
    what = f"item count of {key}"
    if kind == _STRING:
        count = cursor.count(8, what)
        return [cursor.string(f"{key}[{index}]") for index in range(count)]
    if kind not in _SCALARS:
        raise GGUFError(f"{key} is an array of value type {kind}; expected numbers or strings")
    form = _SCALARS[kind]
    size = struct.calcsize(form)
    count = cursor.count(size, what)
    values: list[Any] = np.frombuffer(cursor.take(count * size, key), np.dtype(form)).tolist()
    return values


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, GGUFTensor]:
    infos = [_read_tensor_info(cursor, index) for index in range(count)]
    data_start = cursor.position + -cursor.position % alignment
    tensors: dict[str, GGUFTensor] = {}
    for name, shape, kind, offset in infos:
        if name in tensors:
            raise GGUFError(f"tensor {name!r} occurs twice")
        if offset % alignment:
            raise GGUFError(f"tensor {name}: offset {offset} is no multiple of {alignment}")
        size = _size(name, shape, kind)
        start = data_start + offset
        if start + size > len(cursor.data):
            raise GGUFError(
                f"tensor {name}: expected its data at bytes {start} to {start + size}, the file "
                f"ends at {len(cursor.data)}; it is truncated"
            )
        tensors[name] = GGUFTensor(name, shape, kind, start, size)
    _refuse_overlaps(tensors)
    return tensors


def _read_tensor_info(cursor: _Cursor, index: int) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string(f"name of tensor {index}")
    dimensions = cursor.number("<I", f"dimension count of tensor {name}")
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise GGUFError(
            f"tensor {name} has {dimensions} dimensions; expected 1 to {_MOST_DIMENSIONS}"
        )
    shape = tuple(cursor.number("<Q", f"shape of tensor {name}") for _ in range(dimensions))[::-1]
    if 0 in shape:
        raise GGUFError(f"tensor {name} has the shape {list(shape)}; expected sizes above 0")
    kind = cursor.number("<I", f"type of tensor {name}")
    return name, shape, kind, cursor.number("<Q", f"offset of tensor {name}")


def _size(name: str, shape: tuple[int, ...], kind: int) -> int:
    """Bytes of a tensor; an unsupported type is refused with its name."""
    if kind not in BLOCKS:
        known = ", ".join(TYPE_NAMES[supported] for supported in BLOCKS)
        raise GGUFError(
            f"tensor {name} has type {TYPE_NAMES.get(kind, f'number {kind}')}; "
            f"this version reads {known}"
        )
    items, size = BLOCKS[kind]
    if shape[-1] % items:
        raise GGUFError(
            f"tensor {name}: rows of {shape[-1]} values are no multiple of the {items} values "
            f"in a {TYPE_NAMES[kind]} block"
        )
    count = 1
    for length in shape:
        count *= length
    return count // items * size


def _refuse_overlaps(tensors: Mapping[str, GGUFTensor]) -> None:
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.start)
    for left, right in itertools.pairwise(ordered):
        if left.start + left.size > right.start:
            raise GGUFError(f"tensors {left.name} and {right.name} overlap; the file is damaged")
