"""Read and write safetensors files: Termux has no package for them, and the format is small.

Format: https://github.com/huggingface/safetensors#format

    header length u64 (little endian) | header: JSON | tensor data

The header maps names to {"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the
end of the header; `__metadata__` maps strings to strings. The data has neither gaps nor overlaps.
"""

import json
import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

_LENGTH_BYTES = 8
_LARGEST_HEADER = 100_000_000  # the reference implementation's limit
_MOST_DIMENSIONS = 8
_ITEM_BYTES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}
_WRITABLE: Mapping[np.dtype[Any], str] = {np.dtype("<f4"): "F32", np.dtype("<f2"): "F16"}


class SafetensorsError(ValueError):
    """A safetensors file is malformed, truncated or of a kind we don't read; names the tensor."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's place: bytes `begin` to `end` behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """The checked header of a file; its data begins at byte `data_start`."""

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    data_start: int


class SafetensorsFile:
    """An open file, mapped read-only; tensors load on demand.

    Raises SafetensorsError naming what is wrong, OSError if the file can't be read.
    """

    def __init__(self, path: Path) -> None:
        """Map `path` and check its header."""
        self.header = read_header(path)
        with path.open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def names(self) -> list[str]:
        """The tensors' names in the order of their data."""
        tensors = self.header.tensors
        return sorted(tensors, key=lambda name: (tensors[name].begin, tensors[name].end))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; KeyError for an unknown name."""
        return self.header.tensors[name].shape

    def load(self, name: str) -> npt.NDArray[np.float32]:
        """A copy of a tensor as fp32; KeyError for an unknown name."""
        info = self.header.tensors[name]
        items = (info.end - info.begin) // _ITEM_BYTES[info.dtype]
        start = self.header.data_start + info.begin
        if info.dtype == "BF16":
            halves = np.frombuffer(self._mapped, "<u2", items, start)
            values = (halves.astype(np.uint32) << 16).view(np.float32)
        else:
            form = "<f4" if info.dtype == "F32" else "<f2"
            values = np.frombuffer(self._mapped, form, items, start).astype(np.float32)
        return values.reshape(info.shape)


def read_header(path: Path) -> Header:
    """The header of the file at `path`, checked: sizes, dtypes, no gap, no overlap, no rest.

    Raises SafetensorsError naming what is wrong, OSError if the file can't be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(_LENGTH_BYTES)
        length = int.from_bytes(prefix, "little")
        largest = min(_LARGEST_HEADER, size - _LENGTH_BYTES)
        if len(prefix) < _LENGTH_BYTES or not 2 <= length <= largest:
            raise SafetensorsError(
                f"{path.name}: the header's length is {length}, but the file has {size} bytes; "
                "it is truncated or no safetensors file"
            )
        text = file.read(length)
    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_members)
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{path.name}: the header is no valid JSON ({error})") from error
    if not isinstance(document, dict):
        raise SafetensorsError(f"{path.name}: the header is no JSON object")
    metadata = _metadata(document.pop("__metadata__", {}), path.name)
    tensors = {name: _tensor_info(name, item) for name, item in document.items()}
    _check_coverage(tensors, size - _LENGTH_BYTES - length, path.name)
    return Header(MappingProxyType(tensors), MappingProxyType(metadata), _LENGTH_BYTES + length)


def write_safetensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write fp32 tensors, then fp16 ones, each sorted by name; equal input gives equal bytes.

    Not atomic: write into a folder that isn't published yet. Raises SafetensorsError for another
    dtype.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    position = 0
    # the widest first, as the reference implementation does, so that each tensor is aligned
    ordered = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    for name in ordered:
        tensor = tensors[name]
        if tensor.dtype not in _WRITABLE or name == "__metadata__":
            raise SafetensorsError(
                f"tensor {name} has dtype {tensor.dtype}; expected float32 or float16"
            )
        header[name] = {
            "dtype": _WRITABLE[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.nbytes],
        }
        position += tensor.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little"))
        file.write(text)
        for name in ordered:
            file.write(np.ascontiguousarray(tensors[name]).tobytes())


def _tensor_info(name: str, item: Any) -> TensorInfo:
    """One entry of the header."""
    if not isinstance(item, dict) or item.keys() != {"dtype", "shape", "data_offsets"}:
        raise SafetensorsError(
            f"tensor {name}: expected dtype, shape and data_offsets in the header, found others"
        )
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise SafetensorsError(
            f"tensor {name} has dtype {dtype!r}; this version reads {', '.join(_ITEM_BYTES)}"
        )
    if not _is_sizes(shape):
        raise SafetensorsError(f"tensor {name}: the shape is {shape!r}; expected whole numbers")
    if not _is_sizes(offsets) or len(offsets) != 2:
        raise SafetensorsError(
            f"tensor {name}: data_offsets are {offsets!r}; expected two whole numbers"
        )
    begin, end = offsets
    expected = math.prod(shape) * _ITEM_BYTES[dtype]
    if end - begin != expected:
        raise SafetensorsError(
            f"tensor {name}: {dtype} of shape {shape} needs {expected} bytes, "
            f"but its data_offsets {offsets} hold {end - begin}"
        )
    return TensorInfo(dtype, tuple(shape), begin, end)


def _check_coverage(tensors: Mapping[str, TensorInfo], available: int, file_name: str) -> None:
    """Every byte of the data belongs to exactly one tensor, as the format demands."""
    position = 0
    for name, info in sorted(tensors.items(), key=lambda entry: (entry[1].begin, entry[1].end)):
        if info.begin != position:
            problem = "overlaps the one before it" if info.begin < position else "leaves a gap"
            raise SafetensorsError(
                f"tensor {name} {problem}: its data begins at {info.begin}, expected {position}"
            )
        position = info.end
        if position > available:
            raise SafetensorsError(
                f"tensor {name}: its data ends at {position}, but {file_name} has only "
                f"{available} bytes of data; it is truncated"
            )
    if position != available:
        raise SafetensorsError(
            f"{file_name} has {available} bytes of data, its header describes {position}"
        )


def _metadata(value: Any, file_name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise SafetensorsError(f"{file_name}: __metadata__ is no object of strings")
    return value


def _is_sizes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < 1 << 63 for size in value)
    )


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice")
    return members
