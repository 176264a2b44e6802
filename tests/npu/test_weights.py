"""The frozen-weight file: read back what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.weights import (
    FrozenWeights,
    WeightFormat,
    write_frozen_weights,
)
from tests.npu.conftest import random_weight
from tests.npu.weight_files import json_values, names, source, write


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
