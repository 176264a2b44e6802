"""GGUF files of every family: the weights that the Hugging Face folder gives, and transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainer.families import FAMILIES, Member, make_member
from tests.trainer.family_gguf import write_gguf
from trainer.models.base_model import BaseModel
from trainer.models.gguf_model import read_gguf_model
from trainer.models.huggingface import read_huggingface_model

IN_GGUF = [name for name in FAMILIES if name != "qwen3, untied"]
"""llama.cpp has a Llama's rope_freqs only."""


@pytest.fixture(scope="module", params=IN_GGUF)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Member, Path]:
    home = tmp_path_factory.mktemp("gguf")
    member = make_member(home, request.param)
    return member, write_gguf(home / "model.gguf", member.oracle)


def same_matrices(left: BaseModel, right: BaseModel) -> None:
    ours = {source.name: source.load() for source in left.matrices()}
    theirs = {source.name: source.load() for source in right.matrices()}
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert np.array_equal(values, theirs[name]), name


def test_a_gguf_gives_what_the_folder_gives(pair: tuple[Member, Path]) -> None:
    member, path = pair
    ours, theirs = read_gguf_model(path), read_huggingface_model(member.folder)
    assert ours.config == theirs.config
    same_matrices(ours, theirs)
    vectors, expected = ours.vectors(), theirs.vectors()
    assert vectors.keys() == expected.keys()
    for name, values in expected.items():
        if name == "rope_inverse_frequencies":  # rounded on its way through factors
            assert np.abs(vectors[name] / values - 1).max() < 4 * np.finfo(np.float32).eps
        else:
            assert np.array_equal(vectors[name], values), name


@pytest.mark.slow
def test_transformers_reads_the_same_out_of_it(pair: tuple[Member, Path]) -> None:
    """Names, biases, norms and order of rows on its own; it leaves rope scaling out."""
    member, path = pair
    reference = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, config=member.oracle.config, dtype=torch.float32
    )
    state = {name: value.detach().numpy() for name, value in reference.named_parameters()}
    ours = read_gguf_model(path)
    for source in ours.matrices():
        layer, _, part = source.name.rpartition(".")
        parts = {
            "qkv_proj": ["q_proj", "k_proj", "v_proj"],
            "gate_up_proj": ["gate_proj", "up_proj"],
            "lm_head": ["lm_head"],
        }.get(part, [part])
        names = [
            f"model.{layer}.{name}.weight".replace("..", ".")
            if name != "lm_head"
            else "lm_head.weight"
            for name in parts
        ]
        expected = np.concatenate([state[name] for name in names])
        assert np.array_equal(source.load(), expected), source.name
    for name, vector in ours.vectors().items():
        if name != "rope_inverse_frequencies":
            key = f"model.{name}" if name.endswith(".bias") else f"model.{name}.weight"
            assert np.array_equal(vector, state[key]), name


def test_frequency_factors_belong_to_a_llama(tmp_path: Path) -> None:
    from trainer.models.config import UnsupportedModelError

    member = make_member(tmp_path, "qwen3, untied")
    path = write_gguf(tmp_path / "model.gguf", member.oracle)
    with pytest.raises(UnsupportedModelError, match=r"tensor rope_freqs\.weight is one"):
        read_gguf_model(path)
