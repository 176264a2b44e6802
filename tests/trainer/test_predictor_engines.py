"""The process that answers says the same on every engine, within what their arithmetic differs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.predictor_child import PredictorChild, add_version, label_question

INPUTS = ("call mum", "a parcel is at the door", "50 % off, today only")
TOLERANCE = 0.03
"""In nats, of a label's probability: activations are fp16 into and out of each of the 15 products
that a label's tokens, up to eleven, are summed over."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny_home: Path) -> Path:
    home = tmp_path_factory.mktemp("engines")
    shutil.copytree(tiny_home / "models", home / "models")
    add_version(home, 1)
    return home


@pytest.fixture(scope="module")
def child(home: Path) -> Iterator[PredictorChild]:
    child = PredictorChild(home)
    assert next(iter(child)) == {"event": "ready"}
    yield child
    assert child.end() == (0, []), child.log_text()


def nats(child: PredictorChild, home: Path, engine: str) -> np.ndarray[Any, Any]:
    """The logarithms of the labels' probabilities: of the base model, and with an adapter."""
    found = []
    for version in (None, "adapters/1/versions/run-00000001"):
        chosen = {"engine": engine, "threads": 1}
        answer = child.ask(label_question(home, version, *INPUTS, engine=chosen))
        assert (answer["event"], answer["engine"]) == ("answer", engine), child.log_text()
        found += [list(one["probabilities"].values()) for one in answer["predictions"]]
    return np.log(np.array(found))


@pytest.mark.parametrize(
    "engine",
    ["onnx_cpu", pytest.param("qnn", marks=[pytest.mark.emulator, pytest.mark.slow])],
)
def test_labels_are_those_of_the_processor(child: PredictorChild, home: Path, engine: str) -> None:
    expected = nats(child, home, "torch_cpu")
    off = np.abs(nats(child, home, engine) - expected).max()
    assert 0 < off < TOLERANCE, "of nothing, if nobody but the processor has answered"
    assert np.ptp(expected, axis=0).max() > 100 * TOLERANCE, "the inputs are told apart"
