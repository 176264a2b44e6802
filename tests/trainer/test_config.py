from typing import Any

import pytest

from trainer.models.config import DecoderConfig, UnsupportedModelError
from trainer.models.config_huggingface import config_from_huggingface

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.04,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


def change(**members: Any) -> dict[str, Any]:
    return {key: value for key, value in (SMOLLM2 | members).items() if value != "absent"}


def test_smollm2() -> None:
    config = config_from_huggingface(SMOLLM2)
    assert config == DecoderConfig(
        family="llama",
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        vocab_size=49152,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    assert (config.query_width, config.key_value_width) == (576, 192)
    assert DecoderConfig.from_json(config.to_json()) == config


def test_gguf_and_hugging_face_give_the_same_config(smollm2_gguf: Any) -> None:
    from trainer.models.gguf_model import read_gguf_model

    assert read_gguf_model(smollm2_gguf).config == config_from_huggingface(SMOLLM2)


@pytest.mark.parametrize(
    ("members", "theta"),
    [
        ({"rope_theta": 500000.0}, 500000.0),
        ({"rope_theta": "absent"}, 10000.0),
        ({"rope_theta": "absent", "rope_parameters": {"rope_theta": 7.5e4}}, 75000.0),
        (
            {"rope_theta": "absent", "rope_parameters": {"rope_type": "default", "rope_theta": 5}},
            5.0,
        ),
        ({"rope_scaling": {"rope_type": "default"}}, 100000.0),
    ],
)
def test_rope_theta_is_read_wherever_transformers_writes_it(
    members: dict[str, Any], theta: float
) -> None:
    assert config_from_huggingface(change(**members)).rope_theta == theta


def test_what_this_transformers_writes_is_read(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    import json

    written = transformers.LlamaConfig(
        **{
            key: SMOLLM2[key]
            for key in SMOLLM2
            if key not in ("rope_theta", "rope_scaling", "torch_dtype", "architectures")
        },
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )
    written.save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    assert config_from_huggingface(found) == config_from_huggingface(SMOLLM2)


def test_defaults_are_those_of_transformers() -> None:
    config = config_from_huggingface(
        change(num_key_value_heads="absent", tie_word_embeddings="absent", rms_norm_eps="absent")
    )
    assert config.num_key_value_heads == 9
    assert not config.tie_word_embeddings
    assert config.rms_norm_eps == 1e-6


def test_a_head_size_of_its_own_is_kept() -> None:
    config = config_from_huggingface(change(head_dim=32))
    assert (config.head_dim, config.query_width) == (32, 288)


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"model_type": "qwen2_moe"}, "model_type is 'qwen2_moe'"),
        ({"model_type": "gemma3_text"}, "model_type is 'gemma3_text'"),
        ({"model_type": "phi3"}, "model_type is 'phi3'"),
        ({"model_type": "absent"}, "model_type is None"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters asks for 'yarn'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"sliding_window": 4096}, "sliding_window is 4096"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"head_dim": 65}, "head_dim is 65"),
        ({"num_attention_heads": 7}, "hidden_size 576 is no multiple"),
        ({"num_key_value_heads": 4}, "num_key_value_heads 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"vocab_size": "absent"}, "vocab_size is missing"),
        ({"vocab_size": 1.5}, "vocab_size is 1.5"),
        ({"hidden_size": "576"}, "hidden_size is '576'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'"),
        ({"rope_theta": -1.0}, "rope_theta is -1"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ],
)
def test_what_we_do_not_compute_is_refused_by_name(members: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        config_from_huggingface(change(**members))


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ({"family": "gemma3"}, "architecture is 'gemma3'"),
        ({"head_dim": None}, "head_dim is None"),
        ({"rope_scaling": 2.0}, "has rope_scaling, which this version doesn't know"),
    ],
)
def test_a_stored_config_of_another_version_is_refused(stored: dict[str, Any], named: str) -> None:
    config = config_from_huggingface(SMOLLM2).to_json()
    with pytest.raises(UnsupportedModelError, match=named):
        DecoderConfig.from_json(config | stored)


def test_a_stored_config_without_a_field_is_refused() -> None:
    config = config_from_huggingface(SMOLLM2).to_json()
    del config["rope_theta"]
    with pytest.raises(UnsupportedModelError, match="lacks rope_theta"):
        DecoderConfig.from_json(config)
