"""The pieces of all matrices, laid out in tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from npu.forms.form import Cut, Piece
from npu.frozen_matrix import FrozenMatrix
from npu.graphs_table import Part, TableSpec, groups
from npu.onnx_format import FilePart
from npu.pieces import ranges
from npu.weight_layout import BLOCK, BLOCK_FORMATS, WeightFormat

_LARGEST_PIECE = 8192 * 576
"""Elements, of int8; the compiler runs out of memory at more than twice as many."""
_LARGEST_PIECE_OTHERS = 1536 * 2048
"""Likewise of fp16 and 4 bits: as fp16 a piece lies in the processor's own 8 MiB. 2048x2048 of fp16
fail, and 896x4864 of 4 bits compile for minutes, to a fifth more bytes than in two halves."""
_LARGEST_ROW = 1 << 19
"""Elements of a table's row, half of what the compiler was seen to refuse."""
_LARGEST_ROWS = 16_384
"""Output channels of a piece: the contraction of the input gradient stays within fp16's bounds."""
_LARGEST_COLUMNS = 32_768
"""Input channels of a piece, likewise for the forward product."""
_ALIGNMENT = 4096
"""Parts of a table's file start at a page, so that they can be mapped."""


class Place(NamedTuple):
    """Where a piece lies."""

    table: TableSpec
    rows: npt.NDArray[np.int32]
    """int32 [groups], of the table: what the graph is fed as its index."""


@dataclass(frozen=True)
class Table:
    """Pieces of one format and shape, in the order of their entries."""

    spec: TableSpec
    pieces: tuple[Piece, ...]

    @property
    def file(self) -> str:
        """Name of the table's file."""
        return f"{self.spec.name}.table"

    def layout(self) -> dict[Part, FilePart]:
        """Where its parts lie in its file."""
        places: dict[Part, FilePart] = {}
        end = 0
        for part in self.spec.parts:
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            length = sum(_part(piece, part).nbytes for piece in self.pieces)
            places[part] = FilePart(self.file, start, length)
            end = start + length
        return places

    def write(self, folder: Path) -> dict[Part, FilePart]:
        """Write its file into `folder`; its layout. Raises OSError."""
        layout = self.layout()
        with (folder / self.file).open("wb") as file:
            for part, place in layout.items():
                file.seek(place.offset)
                for piece in self.pieces:
                    file.write(np.ascontiguousarray(_part(piece, part)).data)
        return layout

    def sha256(self) -> str:
        """Of what it holds, in hexadecimal."""
        digest = hashlib.sha256()
        for part in self.spec.parts:
            for piece in self.pieces:
                digest.update(np.ascontiguousarray(_part(piece, part)).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Tables:
    """All tables of a model, and where each piece of each matrix lies."""

    tables: tuple[Table, ...]
    _places: Mapping[tuple[FrozenMatrix, int, int], Place] = field(repr=False)

    @classmethod
    def of(cls, matrices: Iterable[FrozenMatrix]) -> Tables:
        """Every piece of `matrices`, in their order; equal matrices give equal tables."""
        pieces: dict[tuple[WeightFormat, int, int], list[Piece]] = {}
        for matrix in dict.fromkeys(matrices):
            rows, columns = cut(matrix)
            for row in rows:
                for column in columns:
                    piece = Piece(matrix, row, column)
                    pieces.setdefault((matrix.format, *piece.shape), []).append(piece)
        tables = tuple(
            Table(TableSpec(format, N, K, len(entries)), tuple(entries))
            for (format, N, K), entries in pieces.items()
        )
        places = {
            (piece.matrix, piece.rows.start, piece.columns.start): Place(
                table.spec, _index(table.spec, entry)
            )
            for table in tables
            for entry, piece in enumerate(table.pieces)
        }
        return cls(tables, places)

    def place(self, piece: Piece) -> Place:
        """Where `piece` lies. Raises KeyError if its matrix isn't in the tables."""
        return self._places[piece.matrix, piece.rows.start, piece.columns.start]


def cut(matrix: FrozenMatrix) -> Cut:
    """Pieces that the compiler can digest, of one shape if the sizes allow it."""
    N, K = matrix.shape
    unit = BLOCK if matrix.format in BLOCK_FORMATS else 1
    columns = _equal(K, _LARGEST_COLUMNS, unit) or ranges(K, _LARGEST_COLUMNS)
    width = columns[0].stop
    elements = _LARGEST_PIECE if matrix.format == "int8" else _LARGEST_PIECE_OTHERS
    largest = min(_LARGEST_ROWS, elements // width)
    rows = _equal(N, largest, 1, width) or _unequal(N, largest, width)
    return Cut(rows, columns)


def _equal(size: int, largest: int, unit: int, width: int = 1) -> list[slice] | None:
    """`size` in equal ranges of a multiple of `unit`: at most twice as many as are needed."""
    fewest = -(-size // largest)
    for count in range(fewest, 2 * fewest + 1):
        part = size // count
        if part * count == size and part % unit == 0 and _digestible(part, width):
            return ranges(size, part)
    return None


def _unequal(N: int, largest: int, width: int) -> list[slice]:
    """Ranges of as many rows as may be, in multiples of 64, and what is left."""
    found: list[slice] = []
    start = 0
    while start < N:
        count = min(largest, N - start)
        if not _digestible(count, width) or start + count < N:
            count = count - count % 64 or count
        found.append(slice(start, start + count))
        start += count
    return found


def _digestible(rows: int, width: int) -> bool:
    return rows * width // groups(rows) <= _LARGEST_ROW


def _index(spec: TableSpec, entry: int) -> npt.NDArray[np.int32]:
    return np.arange(entry * spec.groups, (entry + 1) * spec.groups, dtype=np.int32)


def _part(piece: Piece, part: Part) -> npt.NDArray[Any]:
    """The rows and columns of a piece, of its matrix's codes, scale or offset."""
    matrix = piece.matrix
    array = getattr(matrix, part)
    elements = 1 if part == "codes" else BLOCK
    if matrix.format in BLOCK_FORMATS and part == "codes":
        elements = 2
    columns = slice(piece.columns.start // elements, piece.columns.stop // elements)
    found: npt.NDArray[Any] = array[piece.rows, columns]
    return found
