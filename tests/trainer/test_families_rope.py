"""Scaled rotary frequencies against `transformers`, bit for bit, and as GGUF keeps them."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.trainer.family_gguf import converted_factors
from tests.trainer.oracle import TINY
from trainer.models.config_gguf import rope_scaling_from_gguf
from trainer.models.config_huggingface import rope_scaling_from_huggingface
from trainer.models.rope import inverse_frequencies, unscaled_inverse_frequencies
from trainer.models.rope_scaling import FactorScaling, Llama3Scaling, RopeScaling

head_sizes = st.sampled_from([2, 8, 12, 64, 80, 128])
thetas = st.sampled_from([10_000.0, 500_000.0, 1e6]) | st.floats(10.0, 1e7)
factors = st.sampled_from([2, 8.0, 32.0]) | st.floats(1.0, 64.0)


def expected(head_dim: int, **parameters: object) -> np.ndarray:
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        rope_parameters=parameters,
        max_position_embeddings=131_072,
    )
    return ROPE_INIT_FUNCTIONS[str(parameters["rope_type"])](config)[0].numpy()


def ours(head_dim: int, theta: float, scaling: RopeScaling | None) -> np.ndarray:
    assert scaling is not None
    unscaled = unscaled_inverse_frequencies(replace(TINY, head_dim=head_dim, rope_theta=theta))
    return scaling.scaled(unscaled.numpy())


@given(
    head_dim=head_sizes,
    theta=thetas,
    factor=factors,
    low=st.sampled_from([1, 1.0]) | st.floats(0.25, 2.0),
    high=st.sampled_from([4, 4.0]) | st.floats(2.5, 16.0),
    context=st.sampled_from([8192, None]) | st.integers(16, 100_000),
)
def test_llama3_scaling_is_transformers_bit_for_bit(
    head_dim: int, theta: float, factor: float, low: float, high: float, context: int | None
) -> None:
    parameters: dict[str, object] = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
    }
    if context is not None:
        parameters["original_max_position_embeddings"] = context
    scaling = rope_scaling_from_huggingface(
        {"rope_scaling": dict(parameters), "max_position_embeddings": 131_072}
    )
    found = ours(head_dim, theta, scaling)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected(head_dim, rope_theta=theta, **parameters))


@given(head_dim=head_sizes, theta=thetas, factor=factors)
def test_linear_scaling_is_transformers_bit_for_bit(
    head_dim: int, theta: float, factor: float
) -> None:
    parameters = {"rope_type": "linear", "factor": factor}
    found = ours(head_dim, theta, rope_scaling_from_huggingface({"rope_parameters": parameters}))
    assert np.array_equal(found, expected(head_dim, rope_theta=theta, **parameters))


def test_unscaled_frequencies_are_transformers_bit_for_bit() -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    for head_dim, theta in ((64, 1e5), (64, 5e5), (128, 1e6), (80, 1e4)):
        config = replace(TINY, head_dim=head_dim, rope_theta=theta)
        theirs = LlamaRotaryEmbedding(
            LlamaConfig(head_dim=head_dim, rope_parameters={"rope_theta": theta})
        )
        assert torch.equal(inverse_frequencies(config, {}), theirs.inv_freq)


def test_a_model_that_scales_them_takes_those_of_its_file() -> None:
    stored = np.linspace(1, 0.1, TINY.head_dim // 2, dtype=np.float32)
    config = replace(TINY, rope_scaled=True)
    found = inverse_frequencies(config, {"rope_inverse_frequencies": stored})
    assert np.array_equal(found.numpy(), stored)


def test_factors_of_a_gguf_give_llama3_up_to_the_last_bits() -> None:
    """Llama 3.2's: what is stretched by a whole factor or not at all is the same bits."""
    config = replace(TINY, head_dim=64, rope_theta=500_000.0)
    unscaled = unscaled_inverse_frequencies(config).numpy()
    scaling = Llama3Scaling(32.0, 1.0, 4.0, 8192)
    factors = converted_factors(scaling, unscaled)
    assert {1.0, 32.0} < set(factors.tolist())
    found = FactorScaling(factors).scaled(unscaled)
    exact = scaling.scaled(unscaled)
    plain = np.isin(factors, (1.0, 32.0))
    assert np.array_equal(found[plain], exact[plain])
    assert np.abs(found / exact - 1).max() < 4 * np.finfo(np.float32).eps


def test_gguf_scaling_is_read_as_llama_cpp_reads_it() -> None:
    def read(**keys: object) -> RopeScaling | None:
        metadata = {"llama." + key.replace("__", "."): value for key, value in keys.items()}
        return rope_scaling_from_gguf({"general.architecture": "llama", **metadata}, None)

    unscaled = np.array([1.0, 0.5], np.float32)
    for keys in (
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
        {"rope__scaling__factor": 4.0},
        {"rope__scale_linear": 4.0},
        {"rope__scaling__factor": 4.0, "rope__scale_linear": 3.0},
    ):
        scaling = read(**keys)
        assert scaling is not None
        assert scaling.scaled(unscaled).tolist() == [0.25, 0.125]
    for keys in (
        {},
        {"rope__scaling__type": "none", "rope__scaling__factor": 4.0},
        {"rope__scaling__type": "linear"},
        {"rope__scaling__factor": 0.0},
        {"rope__scaling__factor": 1.0},
    ):
        assert read(**keys) is None
