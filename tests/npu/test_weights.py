"""The frozen-weight file: read back what was written, refuse what wasn't, leave nothing behind."""

from __future__ import annotations

import errno
import gc
import json
import os
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.weight_layout import ALIGNMENT, DIGEST_BYTES, MAGIC
from npu.weights import (
    FrozenWeights,
    MatrixSource,
    WeightFileError,
    WeightFormat,
    write_frozen_weights,
)
from tests.npu.conftest import random_weight

Header = dict[str, Any]


def source(name: str, W: np.ndarray[Any, Any]) -> MatrixSource:
    return MatrixSource(name, (W.shape[0], W.shape[1]), lambda: W)


def write(path: Path, format: WeightFormat = "int8") -> str:
    return write_frozen_weights(
        path,
        {"config": {"layers": 2}, "note": "ü"},
        [source("first", random_weight(9, 5, 0)), source("second", random_weight(4, 40, 1))],
        {"norm": np.arange(5, dtype=np.float32)},
        format=format,
    )


def rewrite_header(path: Path, change: Callable[[Header], object]) -> None:
    """Change the header of a file and let everything else, the length included, follow."""
    content = path.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[48 : 48 + length])
    data = content[-(-(48 + length) // ALIGNMENT) * ALIGNMENT :]
    replaced = change(header)
    text = replaced if isinstance(replaced, bytes) else json.dumps(header).encode()
    start = MAGIC + len(text).to_bytes(8, "little") + bytes(DIGEST_BYTES) + text
    path.write_bytes(start + bytes(-len(start) % ALIGNMENT) + data)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    metadata=st.dictionaries(names, json_values, max_size=3),
    shapes=st.dictionaries(names, st.tuples(st.integers(1, 9), st.integers(1, 300)), max_size=4),
    lengths=st.dictionaries(names, st.integers(1, 200), max_size=3),
    format=st.sampled_from(["int8", "fp16"]),
)
def test_a_file_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    metadata: dict[str, Any],
    shapes: dict[str, tuple[int, int]],
    lengths: dict[str, int],
    format: WeightFormat,
) -> None:
    folder = tmp_path_factory.mktemp("codec")
    matrices = {
        name: random_weight(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())
    }
    vectors = {name: np.linspace(-3, 7, n, dtype=np.float32) for name, n in lengths.items()}
    sources = [source(name, W) for name, W in matrices.items()]
    path = folder / "weights.lorad"
    content_hash = write_frozen_weights(path, metadata, sources, vectors, format=format)
    weights = FrozenWeights.open(path, verify=True)
    assert weights.metadata == metadata
    assert weights.content_hash == content_hash
    assert list(weights.matrices) == list(matrices)
    assert {name: v.tolist() for name, v in weights.vectors.items()} == {
        name: v.tolist() for name, v in vectors.items()
    }
    for name, W in matrices.items():
        matrix = weights.matrices[name]
        assert matrix.shape == W.shape
        assert matrix.format == format
        if format == "fp16":
            assert matrix.scale is None
            assert np.array_equal(matrix.codes, W.astype(np.float16))
        else:
            assert matrix.scale is not None
            step = matrix.scale[:, None] / 128
            assert (np.abs(matrix.dequantize() - W) <= step * 0.501).all()
        for array in (matrix.codes, matrix.scale):
            if array is not None:
                assert array.ctypes.data % 64 == 0
                assert not array.flags.writeable
    again = folder / "again.lorad"
    assert content_hash == write_frozen_weights(again, metadata, sources, vectors, format=format)
    assert again.read_bytes() == path.read_bytes()
    weights.close()


@pytest.mark.parametrize("format", ["int8", "fp16"])
def test_rows_are_the_rows_of_the_effective_weights(tmp_path: Path, format: WeightFormat) -> None:
    write(tmp_path / "w", format)
    matrix = FrozenWeights.open(tmp_path / "w").matrices["first"]
    index = np.array([3, 0, 8, 3])
    rows = matrix.rows(index)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, matrix.dequantize()[index])
    assert matrix.rows(np.array([], dtype=np.int64)).shape == (0, 5)
    if matrix.scale is not None:
        by_hand = (matrix.codes[8].astype(np.float32) * np.float32(2**-7)) * matrix.scale[8]
        assert np.array_equal(rows[2], by_hand)


@pytest.mark.parametrize("index", [-1, 9])
def test_a_row_outside_the_matrix_is_an_error(tmp_path: Path, index: int) -> None:
    write(tmp_path / "w")
    with pytest.raises(IndexError):
        FrozenWeights.open(tmp_path / "w").matrices["first"].rows(np.array([0, index]))


def test_the_hash_is_the_content_and_nothing_else(tmp_path: Path) -> None:
    first = write(tmp_path / "a")
    assert first == write(tmp_path / "b")
    assert first.startswith("sha256:")
    assert len(first) == len("sha256:") + 64
    assert first != write(tmp_path / "c", "fp16")


def test_arrays_outlive_close(tmp_path: Path) -> None:
    write(tmp_path / "w")
    weights = FrozenWeights.open(tmp_path / "w")
    codes = weights.matrices["first"].codes
    before = codes.copy()
    weights.close()
    assert not weights.matrices
    assert np.array_equal(codes, before)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write(path)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(WeightFileError):
            FrozenWeights.open(path, verify=True)


def test_every_truncation_is_noticed_without_hashing(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write(path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(WeightFileError):
            FrozenWeights.open(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(WeightFileError, match="field 'data'"):
        FrozenWeights.open(path)


def test_a_short_file_names_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write(path)
    path.write_bytes(path.read_bytes()[:-150])
    with pytest.raises(WeightFileError, match=r"matrix 'second' scale: .* truncated"):
        FrozenWeights.open(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, (16 << 20) + 1, 100_000])
def test_an_absurd_header_length_is_refused_before_reading(tmp_path: Path, length: int) -> None:
    path = tmp_path / "w"
    write(path)
    content = bytearray(path.read_bytes())
    content[8:16] = length.to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(WeightFileError, match="header length"):
        FrozenWeights.open(path)


def test_another_file_is_refused_by_its_magic(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"GGUF" + bytes(500))
    with pytest.raises(WeightFileError, match=r"'magic': expected .* found b'GGUF"):
        FrozenWeights.open(path)


def set_in(*path: Any) -> Callable[[Header], object]:
    """A change that sets header[path[0]][path[1]]... to the last item."""

    def change(header: Header) -> None:
        *way, last, value = path
        for step in way:
            header = header[step]
        header[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in("version", 2), "'version'.*found 2"),
        (set_in("version", True), "'version'"),
        (set_in("metadata", []), "metadata: expected an object"),
        (set_in("matrices", {}), "matrices: expected a list"),
        (set_in("vectors", None), "vectors: expected a list"),
        (set_in("extra", 1), "header: expected an object with exactly"),
        (lambda header: header.pop("vectors"), "header: expected an object with exactly"),
        (set_in("matrices", 0, "name", ""), r"matrices\[0\] name"),
        (set_in("matrices", 1, "name", "first"), "matrix 'first': .*twice"),
        (set_in("matrices", 0, "format", "int4"), "matrix 'first' format: .*found 'int4'"),
        (set_in("matrices", 0, "format", "fp16"), "matrix 'first' codes bytes: expected 90"),
        (set_in("matrices", 0, "shape", [9, 6]), "matrix 'first' codes bytes: expected 54"),
        (set_in("matrices", 0, "shape", [9, 5, 1]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [9, True]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [-9, -5]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [0, 5]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [9.0, 5]), "matrix 'first' shape"),
        (set_in("matrices", 0, "scale", None), "matrix 'first' scale"),
        (set_in("matrices", 0, "codes", "offset", 64), "'first' codes: .*multiple of 128"),
        (set_in("matrices", 0, "codes", "offset", -128), "'first' codes offset"),
        (set_in("matrices", 0, "codes", "offset", 1.0), "'first' codes offset"),
        (set_in("matrices", 0, "codes", "offset", 2**80), "'first' codes: .*inside the file"),
        (set_in("matrices", 1, "codes", "offset", 0), "overlaps matrix 'first' codes"),
        (set_in("vectors", 0, "data", "offset", 128), "vector 'norm': .*overlaps"),
        (set_in("vectors", 0, "shape", [6]), "vector 'norm' bytes: expected 24"),
        (set_in("vectors", 0, "shape", [5, 1]), "vector 'norm' shape"),
        (lambda _: b"\xff\xfe{}", "field 'header'"),
        (lambda _: b"[]", "header: expected an object"),
        (lambda _: b"{", "field 'header'"),
        (lambda _: b'{"version":1,"version":1}', "twice"),
        (lambda _: b'{"version":NaN}', "NaN is not JSON"),
        (lambda _: b"[" * 200_000, "field 'header'"),
        (lambda _: b'{"version":' + b"9" * 5000 + b"}", "field 'header'"),
    ],
)
def test_a_wrong_header_is_refused_by_name(
    tmp_path: Path, change: Callable[[Header], object], message: str
) -> None:
    path = tmp_path / "w"
    write(path)
    rewrite_header(path, lambda header: None)
    FrozenWeights.open(path).close()
    rewrite_header(path, change)
    with pytest.raises(WeightFileError, match=message):
        FrozenWeights.open(path)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_header_of_other_json_never_gets_through(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Replace any one value of the header: refused, or a file whose every tensor can be read."""
    path = tmp_path_factory.mktemp("fuzz") / "w"
    write(path)

    def change(header: Header) -> None:
        place: Any = header
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if (
                not place[key]
                or not isinstance(place[key], dict | list)
                or data.draw(st.booleans())
            ):
                place[key] = data.draw(json_values)
                return
            place = place[key]

    rewrite_header(path, change)
    try:
        weights = FrozenWeights.open(path)
    except WeightFileError:
        return
    for matrix in weights.matrices.values():
        assert matrix.dequantize().shape == matrix.shape
    weights.close()


def raising(error: BaseException) -> Callable[[], np.ndarray[Any, Any]]:
    def load() -> np.ndarray[Any, Any]:
        raise error

    return load


@pytest.mark.parametrize("error", [OSError("unreadable"), KeyboardInterrupt()])
def test_nothing_is_left_behind_when_a_matrix_cannot_be_loaded(
    tmp_path: Path, error: BaseException
) -> None:
    sources = [source("good", random_weight(3, 4, 0)), MatrixSource("bad", (3, 4), raising(error))]
    with pytest.raises(type(error)):
        write_frozen_weights(tmp_path / "w", {}, sources, {})
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_older_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w"
    write(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, "fp16")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_and_its_folder_are_synced_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content before the name, the name before success: a crash shows all or nothing."""
    path = tmp_path / "w"
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(path)
    assert synced == [("file", False), ("folder", True)]


@pytest.mark.parametrize(
    ("sources", "vectors", "format", "message"),
    [
        (
            [MatrixSource("m", (3, 4), lambda: random_weight(4, 3, 0))],
            {},
            "int8",
            r"matrix 'm': expected float32 \[3, 4\], found float32 \[4, 3\]",
        ),
        (
            [MatrixSource("m", (3, 4), lambda: np.ones((3, 4)))],  # type: ignore[arg-type,return-value]
            {},
            "int8",
            "matrix 'm': .*float64",
        ),
        ([source("m", np.full((3, 4), np.nan, np.float32))], {}, "int8", "matrix 'm': .*row 0"),
        ([source("m", np.full((3, 4), np.nan, np.float32))], {}, "fp16", "matrix 'm': .*65504"),
        ([source("m", np.full((3, 4), 7e4, np.float32))], {}, "fp16", "matrix 'm': .*65504"),
        ([source("m", random_weight(2, 2, 0))] * 2, {}, "int8", "matrix 'm': .*twice"),
        ([source("", random_weight(2, 2, 0))], {}, "int8", "name"),
        ([MatrixSource("m", (0, 4), lambda: np.ones((0, 4), np.float32))], {}, "int8", "shape"),
        ([], {"v": np.array([1, np.inf], np.float32)}, "int8", "vector 'v'"),
        ([], {"v": np.ones((2, 2), np.float32)}, "int8", "vector 'v'"),
        ([], {"v": np.ones(2)}, "int8", "vector 'v': .*float64"),
    ],
)
def test_wrong_input_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path,
    sources: list[MatrixSource],
    vectors: dict[str, Any],
    format: WeightFormat,
    message: str,
) -> None:
    with pytest.raises(WeightFileError, match=message):
        write_frozen_weights(tmp_path / "w", {}, sources, vectors, format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes", np.float32(1)])
def test_metadata_that_is_not_json_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(WeightFileError, match="'metadata'"):
        write_frozen_weights(tmp_path / "w", {"key": value}, [], {})
    assert not list(tmp_path.iterdir())


def test_one_matrix_is_in_memory_at_a_time(tmp_path: Path) -> None:
    loaded: list[weakref.ref[Any]] = []

    def load() -> np.ndarray[Any, Any]:
        gc.collect()
        assert not [reference for reference in loaded if reference() is not None]
        W = random_weight(30, 40, 0)
        loaded.append(weakref.ref(W))
        return W

    done: list[tuple[int, int]] = []
    write_frozen_weights(
        tmp_path / "w",
        {},
        [MatrixSource(str(i), (30, 40), load) for i in range(4)],
        {},
        progress=lambda *step: done.append(step),
    )
    assert done == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
