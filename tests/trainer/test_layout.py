from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npu.weights import FrozenWeights
from tests.trainer.oracle import TINY, write_tiny_weights
from trainer.models.layout import matrices_multiplied_by


@pytest.mark.parametrize("tied", [True, False])
def test_all_matrices_but_an_embedding_of_its_own_are_multiplied_by(
    tmp_path: Path, tied: bool
) -> None:
    config = replace(TINY, tie_word_embeddings=tied)
    write_tiny_weights(tmp_path / "weights.lorad", config)
    weights = FrozenWeights.open(tmp_path / "weights.lorad")
    looked_up = set() if tied else {"embed_tokens"}
    assert set(weights.matrices) - matrices_multiplied_by(config) == looked_up
    assert matrices_multiplied_by(config) <= set(weights.matrices)
    weights.close()
