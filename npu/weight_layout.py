"""Where everything lies in a frozen-weight file: its header, written and strictly checked.

    offset        size   what
    0             8      magic
    8             8      H, the length of the header, little-endian
    16            32     SHA-256 of everything in the file except these 32 bytes
    48            H      header: JSON, UTF-8
    aligned       ...    raw little-endian tensors in header order, each aligned to 128 bytes
                         (a Hexagon vector), zero bytes between them; nothing after the last one

A matrix [N, K] is its codes and, by format, what turns codes into weights (`weights.py`):

    fp16      codes fp16 [N, K]
    int8      codes int8 [N, K]      scale fp32 [N]
    int4      codes 4-bit [N, K]     scale fp16 [N, K/32]
    int4_min  codes 4-bit [N, K]     scale fp16 [N, K/32]    offset fp16 [N, K/32]

4-bit codes are ONNX's INT4: two's complement, two a byte, the even column in the low nibble.

Offsets in the header count from the first aligned byte behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

WeightFormat = Literal["int8", "fp16", "int4", "int4_min"]

MAGIC = b"LORADWT1"
DIGEST_OFFSET = 16
DIGEST_BYTES = 32
HEADER_OFFSET = DIGEST_OFFSET + DIGEST_BYTES
ALIGNMENT = 128
LARGEST_HEADER = 16 << 20
"""A header of a 100-layer model is about 100 KiB; whatever claims more than 16 MiB is damaged."""

BLOCK = 32
"""Columns of a 4-bit weight that share a scale: GGUF's Q4_0 and Q4_1."""

BLOCK_FORMATS: tuple[WeightFormat, ...] = ("int4", "int4_min")
"""Formats with a scale per BLOCK columns, and so with a K that is a multiple of it."""

_CODE_BITS: Mapping[WeightFormat, int] = {"int8": 8, "fp16": 16, "int4": 4, "int4_min": 4}
_FLOAT_BYTES = 4
_HALF_BYTES = 2


class WeightFileError(ValueError):
    """The frozen-weight file, or what should become one, is wrong; names the tensor or field."""


@dataclass(frozen=True)
class Extent:
    """A tensor's bytes, counted from the start of the data."""

    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class MatrixEntry:
    """A weight matrix [N, K] in the header; its format says which of scale and offset exist."""

    name: str
    format: WeightFormat
    shape: tuple[int, int]
    codes: Extent
    scale: Extent | None
    offset: Extent | None


@dataclass(frozen=True)
class VectorEntry:
    """A fp32 vector in the header."""

    name: str
    length: int
    data: Extent


@dataclass(frozen=True)
class Layout:
    """The whole header."""

    metadata: dict[str, Any]
    matrices: tuple[MatrixEntry, ...]
    vectors: tuple[VectorEntry, ...]

    def extents(self) -> Iterator[tuple[str, Extent]]:
        """Every tensor of the file as (label for error messages, extent), in header order."""
        for matrix in self.matrices:
            yield f"matrix '{matrix.name}' codes", matrix.codes
            if matrix.scale is not None:
                yield f"matrix '{matrix.name}' scale", matrix.scale
            if matrix.offset is not None:
                yield f"matrix '{matrix.name}' offset", matrix.offset
        for vector in self.vectors:
            yield f"vector '{vector.name}'", vector.data

    @property
    def data_bytes(self) -> int:
        """Bytes from the start of the data to the end of the last tensor."""
        return max((extent.end for _, extent in self.extents()), default=0)


def aligned(offset: int) -> int:
    """The next multiple of ALIGNMENT, `offset` itself included."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def data_start(header_bytes: int) -> int:
    """Where the tensors begin in a file whose JSON header has that many bytes."""
    return aligned(HEADER_OFFSET + header_bytes)


def part_bytes(format: WeightFormat, N: int, K: int) -> tuple[int, int | None, int | None]:
    """Bytes of a matrix's codes, scale and offset; None for what the format doesn't have.

    Raises WeightFileError for a K that can't be cut into blocks.
    """
    codes = N * K * _CODE_BITS[format] // 8
    if format == "fp16":
        return codes, None, None
    if format == "int8":
        return codes, N * _FLOAT_BYTES, None
    if K % BLOCK:
        raise WeightFileError(
            f"expected a number of columns that is a multiple of {BLOCK}, found {K}: "
            f"{format} has a scale for every {BLOCK} of them, so use int8 for this matrix"
        )
    blocks = N * K // BLOCK * _HALF_BYTES
    return codes, blocks, blocks if format == "int4_min" else None


def plan_layout(
    metadata: Mapping[str, Any],
    matrices: Sequence[tuple[str, tuple[int, int], WeightFormat]],
    vectors: Sequence[tuple[str, int]],
) -> Layout:
    """Lay the named matrices [N, K], each with its format, and vectors [n] out one behind another.

    Raises WeightFileError naming a matrix that can't have its format.
    """
    position = 0

    def place(size: int) -> Extent:
        nonlocal position
        extent = Extent(aligned(position), size)
        position = extent.end
        return extent

    def entry(name: str, shape: tuple[int, int], format: WeightFormat) -> MatrixEntry:
        try:
            codes, scale, offset = part_bytes(format, *shape)
        except WeightFileError as error:
            raise WeightFileError(f"matrix '{name}': {error}") from None
        return MatrixEntry(
            name=name,
            format=format,
            shape=shape,
            codes=place(codes),
            scale=None if scale is None else place(scale),
            offset=None if offset is None else place(offset),
        )

    matrix_entries = tuple(entry(*matrix) for matrix in matrices)
    vector_entries = tuple(
        VectorEntry(name=name, length=length, data=place(length * _FLOAT_BYTES))
        for name, length in vectors
    )
    return Layout(dict(metadata), matrix_entries, vector_entries)


def encode_header(layout: Layout) -> bytes:
    """The layout as canonical JSON; equal layouts give equal bytes."""

    def extent(value: Extent) -> dict[str, int]:
        return {"offset": value.offset, "bytes": value.bytes}

    document = {
        "version": 1,
        "metadata": layout.metadata,
        "matrices": [
            {
                "name": entry.name,
                "format": entry.format,
                "shape": list(entry.shape),
                "codes": extent(entry.codes),
                "scale": extent(entry.scale) if entry.scale is not None else None,
                # Files of the older formats keep the bytes they always had, and so their hash.
                **({"offset": extent(entry.offset)} if entry.offset is not None else {}),
            }
            for entry in layout.matrices
        ],
        "vectors": [
            {"name": entry.name, "shape": [entry.length], "data": extent(entry.data)}
            for entry in layout.vectors
        ],
    }
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise WeightFileError(
            f"field 'metadata': expected JSON values only, found one that isn't ({error}): "
            "give strings, finite numbers, lists and objects"
        ) from error
    return text.encode("ascii")


def decode_header(header: bytes, available: int) -> Layout:
    """The layout a header describes, checked against the `available` bytes of data behind it.

    Raises WeightFileError naming the tensor or the field that is wrong.
    """
    try:
        document = json.loads(
            header.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise WeightFileError(
            f"field 'header': expected JSON, found something else ({error}): the file is damaged, "
            "add the model again"
        ) from error
    root = _members(document, "header", {"version", "metadata", "matrices", "vectors"})
    if root["version"] != 1 or isinstance(root["version"], bool):
        raise WeightFileError(
            f"field 'version': expected 1, found {root['version']!r}: add the model again with "
            "this version of lorad"
        )
    if not isinstance(root["metadata"], dict):
        raise _wrong("metadata", "an object", root["metadata"])
    layout = Layout(
        metadata=root["metadata"],
        matrices=tuple(_matrix(item, i) for i, item in enumerate(_list(root, "matrices"))),
        vectors=tuple(_vector(item, i) for i, item in enumerate(_list(root, "vectors"))),
    )
    _check_names("matrix", [entry.name for entry in layout.matrices])
    _check_names("vector", [entry.name for entry in layout.vectors])
    _check_extents(layout, available)
    return layout


def _check_names(kind: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WeightFileError(
                f"{kind} '{name}': expected each name once, found it twice: add the model again"
            )
        seen.add(name)


def _check_extents(layout: Layout, available: int) -> None:
    previous_label, previous_end = "", 0
    for label, extent in sorted(layout.extents(), key=lambda item: item[1].offset):
        if extent.offset % ALIGNMENT:
            raise WeightFileError(
                f"{label}: expected an offset that is a multiple of {ALIGNMENT}, found "
                f"{extent.offset}: the file is damaged, add the model again"
            )
        if extent.offset < previous_end:
            raise WeightFileError(
                f"{label}: expected bytes of its own, found that it overlaps {previous_label}: "
                "the file is damaged, add the model again"
            )
        if extent.end > available:
            raise WeightFileError(
                f"{label}: expected its bytes {extent.offset} to {extent.end} inside the file, "
                f"found only {available} bytes of data: the file is truncated, add the model again"
            )
        previous_label, previous_end = label, extent.end
    if available != layout.data_bytes:
        raise WeightFileError(
            f"field 'data': expected {layout.data_bytes} bytes, found {available}: "
            "the file is damaged, add the model again"
        )


def _matrix(item: object, index: int) -> MatrixEntry:
    where = f"matrices[{index}]"
    names = {"name", "format", "shape", "codes", "scale"}
    with_offset = isinstance(item, dict) and item.get("format") == "int4_min"
    members = _members(item, where, names | {"offset"} if with_offset else names)
    name = _name(members, where)
    where = f"matrix '{name}'"
    format = members["format"]
    if format not in get_args(WeightFormat):
        raise _wrong(f"{where} format", f"one of {', '.join(get_args(WeightFormat))}", format)
    rows, columns = _shape(members, where, 2)
    try:
        codes, scale, offset = part_bytes(format, rows, columns)
    except WeightFileError as error:
        raise WeightFileError(f"{where} shape: {error}") from None
    return MatrixEntry(
        name=name,
        format=format,
        shape=(rows, columns),
        codes=_extent(members["codes"], f"{where} codes", codes),
        scale=_optional_extent(members["scale"], f"{where} scale", scale),
        offset=_optional_extent(members.get("offset"), f"{where} offset", offset),
    )


def _vector(item: object, index: int) -> VectorEntry:
    where = f"vectors[{index}]"
    members = _members(item, where, {"name", "shape", "data"})
    name = _name(members, where)
    where = f"vector '{name}'"
    (length,) = _shape(members, where, 1)
    return VectorEntry(name, length, _extent(members["data"], where, length * _FLOAT_BYTES))


def _extent(item: object, where: str, expected_bytes: int) -> Extent:
    members = _members(item, where, {"offset", "bytes"})
    for field in ("offset", "bytes"):
        if type(members[field]) is not int or members[field] < 0:
            raise _wrong(f"{where} {field}", "an integer of 0 or more", members[field])
    if members["bytes"] != expected_bytes:
        raise _wrong(f"{where} bytes", f"{expected_bytes} for its shape", members["bytes"])
    return Extent(members["offset"], members["bytes"])


def _optional_extent(item: object, where: str, expected_bytes: int | None) -> Extent | None:
    if expected_bytes is not None:
        return _extent(item, where, expected_bytes)
    if item is not None:
        raise _wrong(where, "null, since this format has none", item)
    return None


def _shape(members: Mapping[str, Any], where: str, rank: int) -> list[int]:
    shape = members["shape"]
    if (
        not isinstance(shape, list)
        or len(shape) != rank
        or any(type(size) is not int or size < 1 for size in shape)
    ):
        raise _wrong(f"{where} shape", f"{rank} positive integers", shape)
    return shape


def _name(members: Mapping[str, Any], where: str) -> str:
    name = members["name"]
    if not isinstance(name, str) or not name:
        raise _wrong(f"{where} name", "a name", name)
    return name


def _list(root: Mapping[str, Any], field: str) -> list[object]:
    value = root[field]
    if not isinstance(value, list):
        raise _wrong(field, "a list", value)
    return value


def _members(item: object, where: str, names: set[str]) -> dict[str, Any]:
    if not isinstance(item, dict) or set(item) != names:
        found = sorted(item) if isinstance(item, dict) else item
        raise _wrong(where, f"an object with exactly {sorted(names)}", found)
    return item


def _wrong(field: str, expected: str, found: object) -> WeightFileError:
    shown = repr(found)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return WeightFileError(
        f"{field}: expected {expected}, found {shown}: the file is damaged, add the model again"
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
