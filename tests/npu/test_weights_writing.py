"""The frozen-weight file: a write that fails leaves nothing behind and the older file alone."""

from __future__ import annotations

import errno
import gc
import os
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu.quantize import Quantized
from npu.weights import (
    MatrixSource,
    WeightFileError,
    WeightFormat,
    write_frozen_weights,
)
from tests.npu.conftest import random_weight
from tests.npu.weight_files import source, write


def raising(error: BaseException) -> Callable[[], np.ndarray[Any, Any]]:
    def load() -> np.ndarray[Any, Any]:
        raise error

    return load


def native(
    name: str, shape: tuple[int, int], format: WeightFormat, codes: tuple[int, int]
) -> MatrixSource:
    """A source whose own blocks are an int4's with codes of that shape, whatever it says."""
    blocks = Quantized(np.zeros(codes, np.uint8), np.zeros((shape[0], shape[1] // 32), np.float16))
    return MatrixSource(name, shape, lambda: np.ones(shape), format, lambda: blocks)


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
        ([source("m", np.full((3, 32), np.nan, np.float32))], {}, "int4", "matrix 'm': .*row 0"),
        ([source("m", np.full((3, 32), 2e4, np.float32))], {}, "int4_min", "matrix 'm': .*16376"),
        ([source("m", random_weight(2, 40, 0))], {}, "int4", "matrix 'm': .*of 32, found 40"),
        ([native("m", (3, 32), "int4", (3, 32))], {}, "int4", "matrix 'm': expected codes"),
        ([native("m", (3, 64), "int4", (3, 16))], {}, "int4", "matrix 'm': expected codes"),
        ([native("m", (3, 32), "int4", (3, 16))], {}, "int4_min", "matrix 'm': .*found float64"),
        ([native("m", (3, 32), "int4_min", (3, 16))], {}, "int4_min", "matrix 'm': expected codes"),
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
