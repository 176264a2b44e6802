"""The frozen-weight file: read back what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.quantize import Quantized, quantize
from npu.weights import (
    FrozenWeights,
    MatrixSource,
    WeightFormat,
    write_frozen_weights,
)
from tests.npu.conftest import random_weight
from tests.npu.weight_files import json_values, names, source, write

FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)


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


def grid(N: int, K: int) -> np.ndarray[Any, Any]:
    """Numbers that no machine rounds differently."""
    return ((np.arange(N * K) * 37 % 29 - 14) / 8).astype(np.float32).reshape(N, K)


@pytest.mark.parametrize(
    ("format", "content_hash"),
    [
        ("int8", "sha256:0492e2e46ec2a898a22dd4f3c7b6a3c222cda8ead327ca68a463b40c05af3996"),
        ("fp16", "sha256:847f0c83cfbe0a1c2fda01192f56bbd40350069557b1b5ac8f7cc6dfa5bbb944"),
    ],
)
def test_files_are_what_they_were_before_there_were_4_bits(
    tmp_path: Path, format: WeightFormat, content_hash: str
) -> None:
    """Adapters belong to a hash: it was computed with the code before the 4-bit formats."""
    found = write_frozen_weights(
        tmp_path / "w",
        {"config": {"layers": 2}, "note": "ü"},
        [source("first", grid(9, 5)), source("second", grid(4, 40))],
        {"norm": np.arange(5, dtype=np.float32)},
        format=format,
    )
    assert found == content_hash


@settings(deadline=None)
@given(
    shapes=st.dictionaries(
        names,
        st.tuples(st.integers(1, 9), st.integers(1, 3), st.sampled_from(FORMATS)),
        max_size=4,
    ),
    data=st.data(),
)
def test_every_matrix_may_have_a_format_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: dict[str, tuple[int, int, WeightFormat]],
    data: st.DataObject,
) -> None:
    """What is read is bit for bit what the quantiser, or the source itself, gave."""
    folder = tmp_path_factory.mktemp("mixed")
    formats = {name: format for name, (_, _, format) in shapes.items()}
    sources, expected = [], {}
    for index, (name, (N, blocks, format)) in enumerate(shapes.items()):
        W = random_weight(N, blocks * 32, seed=index)
        quantized = quantize(W, format)
        expected[name] = quantized
        own = format in ("int4", "int4_min") and data.draw(st.booleans())

        def load(W: np.ndarray[Any, Any] = W, own: bool = own) -> np.ndarray[Any, Any]:
            assert not own, "a native matrix must not be quantised again"
            return W

        sources.append(
            MatrixSource(name, (N, blocks * 32), load, format, lambda q=quantized: q)  # type: ignore[misc]
            if own
            else MatrixSource(name, (N, blocks * 32), load)
        )
    path = folder / "w"
    content_hash = write_frozen_weights(path, {}, sources, {}, format=formats)
    weights = FrozenWeights.open(path, verify=True)
    assert weights.content_hash == content_hash
    for name, quantized in expected.items():
        matrix = weights.matrices[name]
        assert matrix.format == formats[name]
        for found, given_ in (
            (matrix.codes, quantized.codes),
            (matrix.scale, quantized.scale),
            (matrix.offset, quantized.offset),
        ):
            if given_ is None:
                assert found is None
            else:
                assert found is not None
                assert found.dtype == given_.dtype
                assert np.array_equal(found, given_)
                assert found.ctypes.data % 64 == 0
                assert not found.flags.writeable
        alone = np.concatenate([matrix.rows(np.array([row])) for row in range(matrix.shape[0])])
        assert np.array_equal(alone, matrix.dequantize())
    weights.close()


def test_native_blocks_are_not_used_for_another_format(tmp_path: Path) -> None:
    W = random_weight(4, 32, 0)

    def wrong() -> Quantized:
        raise AssertionError

    native = MatrixSource("m", (4, 32), lambda: W, "int4_min", wrong)
    plain = write_frozen_weights(tmp_path / "a", {}, [source("m", W)], {}, format="int4")
    assert plain == write_frozen_weights(tmp_path / "b", {}, [native], {}, format="int4")


def test_arrays_outlive_close(tmp_path: Path) -> None:
    write(tmp_path / "w")
    weights = FrozenWeights.open(tmp_path / "w")
    codes = weights.matrices["first"].codes
    before = codes.copy()
    weights.close()
    assert not weights.matrices
    assert np.array_equal(codes, before)
