"""Weights to test with: never square, never symmetric, rows of different sizes."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from npu.weights import FrozenWeights, MatrixSource, WeightFormat, write_frozen_weights


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The emulator exists for Linux on x86-64 only; there its absence is a failure, not a skip."""
    here = sys.platform, platform.machine()
    if item.get_closest_marker("emulator") and here != ("linux", "x86_64"):
        pytest.skip(f"Qualcomm's HTP emulator is for Linux on x86_64, this is {here}")


Matrices = Mapping[str, npt.NDArray[np.float32]]
Freeze = Callable[[Matrices, WeightFormat], FrozenWeights]


def random_weight(N: int, K: int, seed: int) -> npt.NDArray[np.float32]:
    """[N, K] whose rows differ in size by about two decades."""
    generator = np.random.default_rng(seed)
    sizes = np.exp(generator.standard_normal((N, 1)))
    return (generator.standard_normal((N, K)) * sizes / np.sqrt(K)).astype(np.float32)


@pytest.fixture(scope="session")
def freeze(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Freeze]:
    """Write matrices to a frozen-weight file and open it."""
    opened: list[FrozenWeights] = []

    def make(matrices: Matrices, format: WeightFormat) -> FrozenWeights:
        path: Path = tmp_path_factory.mktemp("weights") / "weights.lorad"
        write_frozen_weights(
            path,
            {},
            [
                MatrixSource(name, (W.shape[0], W.shape[1]), lambda W=W: W)
                for name, W in matrices.items()
            ],
            {},
            format=format,
        )
        opened.append(FrozenWeights.open(path))
        return opened[-1]

    yield make
    for weights in opened:
        weights.close()
