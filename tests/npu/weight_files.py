"""Small frozen-weight files, and what may stand in their headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from npu.weights import MatrixSource, WeightFormat, write_frozen_weights
from tests.npu.conftest import random_weight

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


MIXED: dict[str, WeightFormat] = {
    "four": "int4",
    "five": "int4_min",
    "eight": "int8",
    "sixteen": "fp16",
}


def write_mixed(path: Path) -> str:
    """A file with a matrix of every format, named in the order of its bits; five is int4_min."""
    shapes = {"four": (3, 64), "five": (2, 32), "eight": (3, 5), "sixteen": (2, 7)}
    return write_frozen_weights(
        path,
        {},
        [source(name, random_weight(*shape, seed=1)) for name, shape in shapes.items()],
        {"norm": np.arange(5, dtype=np.float32)},
        format=MIXED,
    )
