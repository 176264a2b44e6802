"""Every family's description: what is read, what is refused by name, what a file keeps of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu.weights import FrozenWeights
from trainer.add_model import add_model
from trainer.models.config import DecoderConfig, UnsupportedModelError
from trainer.models.config_gguf import config_from_gguf, rope_scaling_from_gguf
from trainer.models.config_huggingface import (
    config_from_huggingface,
    rope_scaling_from_huggingface,
)
from trainer.models.layout import tensor_shapes
from trainer.models.rope_scaling import LinearScaling, Llama3Scaling
from trainer.models.tiny import write_tiny_model

QWEN25 = {  # Qwen2.5-0.5B-Instruct
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3 = {  # Qwen3-0.6B
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LLAMA32 = {  # Llama-3.2-1B-Instruct
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}


def change(base: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {key: value for key, value in (base | members).items() if value != "absent"}


def rope(**members: Any) -> dict[str, Any]:
    return change(LLAMA32, rope_scaling=change(LLAMA32["rope_scaling"], **members))


def test_qwen25() -> None:
    config = config_from_huggingface(QWEN25)
    assert (config.family, config.head_dim, config.rope_theta) == ("qwen2", 64, 1e6)
    assert (config.attention_bias, config.qk_norm, config.rope_scaled) == (True, False, False)
    shapes = tensor_shapes(config)
    assert shapes["layers.23.self_attn.q_proj.bias"] == (896,)
    assert shapes["layers.0.self_attn.v_proj.bias"] == (128,)
    assert "lm_head" not in shapes
    # 494,032,768 is what the model's makers count
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 494_032_768


def test_qwen3() -> None:
    config = config_from_huggingface(QWEN3)
    assert (config.family, config.head_dim, config.query_width) == ("qwen3", 128, 2048)
    assert (config.attention_bias, config.qk_norm, config.rope_scaled) == (False, True, False)
    shapes = tensor_shapes(config)
    assert shapes["layers.27.self_attn.k_norm"] == (128,)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 596_049_920


def test_llama32() -> None:
    config = config_from_huggingface(LLAMA32)
    assert (config.attention_bias, config.qk_norm, config.rope_scaled) == (False, False, True)
    assert rope_scaling_from_huggingface(LLAMA32) == Llama3Scaling(32.0, 1.0, 4.0, 8192)
    assert DecoderConfig.from_json(config.to_json()) == config
    assert sum(int(np.prod(s)) for s in tensor_shapes(config).values()) == 1_235_814_400


@pytest.mark.parametrize("base", [QWEN25, QWEN3, LLAMA32], ids=["qwen2.5", "qwen3", "llama3.2"])
def test_what_this_transformers_writes_of_it_is_read_the_same(
    base: dict[str, Any], tmp_path: Path
) -> None:
    import json

    from transformers import AutoConfig

    (tmp_path / "config.json").write_text(json.dumps(base))
    AutoConfig.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    written = json.loads((tmp_path / "again/config.json").read_text())
    assert written != base
    assert config_from_huggingface(written) == config_from_huggingface(base)
    assert rope_scaling_from_huggingface(written) == rope_scaling_from_huggingface(base)


def test_defaults_that_differ_between_families_are_those_of_transformers() -> None:
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config

    for base, kind in ((QWEN25, Qwen2Config), (QWEN3, Qwen3Config), (LLAMA32, LlamaConfig)):
        bare = change(
            base,
            num_attention_heads=32,
            hidden_size=2048,
            head_dim="absent",
            num_key_value_heads="absent",
            tie_word_embeddings="absent",
            rms_norm_eps="absent",
            rope_theta="absent",
            rope_scaling="absent",
            torch_dtype="absent",
        )
        theirs = kind(**{k: v for k, v in bare.items() if k not in ("model_type", "architectures")})
        config = config_from_huggingface(bare)
        head_dim = getattr(theirs, "head_dim", None) or 2048 // 32
        assert (config.num_key_value_heads, config.head_dim) == (
            theirs.num_key_value_heads,
            head_dim,
        )
        assert config.tie_word_embeddings == theirs.tie_word_embeddings
        assert config.rms_norm_eps == theirs.rms_norm_eps
        assert config.rope_theta == theirs.rope_parameters["rope_theta"]


@pytest.mark.parametrize(
    "members",
    [
        {"sliding_window": 16, "use_sliding_window": False, "max_window_layers": 0},
        {"use_sliding_window": True, "max_window_layers": 24},
        {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": None},
        {"layer_types": ["full_attention"] * 24, "sliding_window": None},
    ],
)
def test_a_window_that_is_not_in_force_is_no_reason_to_refuse(members: dict[str, Any]) -> None:
    """transformers makes none of them a sliding layer."""
    from transformers import Qwen2Config

    config = change(QWEN25, **members)
    theirs = Qwen2Config(**{k: v for k, v in config.items() if k != "model_type"})
    assert theirs.sliding_window is None or set(theirs.layer_types) == {"full_attention"}
    assert config_from_huggingface(config) == config_from_huggingface(QWEN25)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (change(QWEN25, use_sliding_window=True), r"use_sliding_window is True.* layer 21 of 24"),
        (
            change(QWEN3, use_sliding_window=True, max_window_layers="absent", sliding_window=8)
            | {"num_hidden_layers": 40},
            r"use_sliding_window is True.* layer 28 of 40",
        ),
        (change(QWEN25, layer_types=["sliding_attention"]), "layer_types holds"),
        (change(QWEN3, attention_bias=True), "attention_bias is True"),
        (change(LLAMA32, attention_bias=True), "attention_bias is True"),
        (change(LLAMA32, mlp_bias=True), "mlp_bias is True"),
        (change(LLAMA32, sliding_window=4096), "sliding_window is 4096"),
        (change(QWEN25, is_causal=False), "is_causal is False"),
        (change(QWEN25, hidden_act="gelu"), "hidden_act is 'gelu'"),
        (
            change(QWEN3, model_type="qwen3_moe"),
            "model_type is 'qwen3_moe'; .* llama, qwen2, qwen3",
        ),
        (change(QWEN3, model_type="qwen2_vl"), "model_type is 'qwen2_vl'"),
        (change(QWEN25, partial_rotary_factor=0.25), "partial_rotary_factor is 0.25"),
        (change(QWEN25, quantization_config={"bits": 4}), "quantization_config is"),
        *(
            (change(QWEN25, rope_scaling={key: kind, "factor": 4.0}), f"asks for '{kind}'")
            for kind in ("yarn", "dynamic", "longrope", "su", "mrope", "proportional")
            for key in ("type", "rope_type")
        ),
        (
            change(QWEN25, rope_scaling={"rope_type": "default", "mrope_section": [16, 24, 24]}),
            "rope_scaling has mrope_section",
        ),
        (
            change(QWEN3, rope_parameters={"full_attention": {"rope_theta": 1e6}}),
            "rope_parameters has full_attention",
        ),
        (
            change(LLAMA32, rope_parameters={"rope_type": "default"}),
            "rope_scaling and rope_parameters differ",
        ),
        (
            change(QWEN3, rope_parameters={"partial_rotary_factor": 0.5}),
            "rope_parameters: partial_rotary_factor is 0.5",
        ),
        (change(QWEN3, rope_parameters=[1]), r"rope_parameters is \[1\]"),
        (rope(rope_type=None), "asks for None"),
        (rope(factor="absent"), "rope_scaling: factor is None"),
        (rope(factor=-1.0), "rope_scaling: factor is -1"),
        (rope(factor="8"), "rope_scaling: factor is '8'"),
        (rope(factor=True), "rope_scaling: factor is True"),
        (rope(low_freq_factor=0), "low_freq_factor is 0"),
        (rope(high_freq_factor=float("inf")), "high_freq_factor is inf"),
        (rope(high_freq_factor=1.0), "high_freq_factor is 1.0; expected more than low_freq_factor"),
        (rope(original_max_position_embeddings=0.5), "original_max_position_embeddings is 0.5"),
        (change(QWEN25, rope_scaling={"type": "linear"}), "rope_scaling: factor is None"),
    ],
)
def test_what_we_do_not_compute_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        config_from_huggingface(config)


GGUF_QWEN2 = {
    "general.architecture": "qwen2",
    "qwen2.block_count": 24,
    "qwen2.context_length": 32768,
    "qwen2.embedding_length": 896,
    "qwen2.feed_forward_length": 4864,
    "qwen2.attention.head_count": 14,
    "qwen2.attention.head_count_kv": 2,
    "qwen2.rope.freq_base": 1000000.0,
    "qwen2.attention.layer_norm_rms_epsilon": float(np.float32(1e-6)),
}
GGUF_QWEN3 = {key.replace("qwen2", "qwen3"): value for key, value in GGUF_QWEN2.items()} | {
    "general.architecture": "qwen3",
    "qwen3.block_count": 28,
    "qwen3.context_length": 40960,
    "qwen3.embedding_length": 1024,
    "qwen3.feed_forward_length": 3072,
    "qwen3.attention.head_count": 16,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "qwen3.attention.value_length": 128,
}


@pytest.mark.parametrize(("metadata", "same"), [(GGUF_QWEN2, QWEN25), (GGUF_QWEN3, QWEN3)])
def test_gguf_metadata_gives_the_same_config(
    metadata: dict[str, Any], same: dict[str, Any]
) -> None:
    found = config_from_gguf(metadata, vocab_size=151936, tie_word_embeddings=True)
    assert found == config_from_huggingface(same)


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"general.architecture": "qwen2moe"}, r"general\.architecture is 'qwen2moe'; .* qwen3"),
        ({"general.architecture": ["qwen2"]}, r"general\.architecture is \['qwen2'\]"),
        ({"qwen2.rope.scaling.type": "yarn"}, r"qwen2\.rope\.scaling\.type is 'yarn'"),
        ({"qwen2.rope.scaling.type": "longrope"}, r"qwen2\.rope\.scaling\.type is 'longrope'"),
        ({"qwen2.rope.scaling.factor": -4.0}, r"qwen2\.rope\.scaling\.factor is -4"),
        ({"qwen2.rope.scaling.factor": "4"}, r"qwen2\.rope\.scaling\.factor is '4'"),
        ({"qwen2.rope.scaling.attn_factor": 1.5}, "attn_factor is 1.5"),
        ({"qwen2.rope.dimension_sections": [1, 2, 3, 0]}, "dimension_sections"),
        ({"qwen2.rope.dimension_count": 32}, "dimension_count is 32"),
        ({"qwen2.expert_count": 60}, "expert_count is 60"),
        ({"qwen2.attention.sliding_window": 512}, "sliding_window is 512"),
        ({"qwen2.attention.causal": False}, "causal is False"),
        ({"qwen2.attention.scale": 0.5}, "scale is 0.5"),
        ({"qwen2.embedding_length": None}, r"qwen2\.embedding_length is missing"),
    ],
)
def test_what_a_gguf_asks_for_in_vain_is_named(members: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        config_from_gguf(GGUF_QWEN2 | members, vocab_size=151936, tie_word_embeddings=True)


def test_scaled_frequencies_in_a_gguf_are_in_the_config() -> None:
    linear = GGUF_QWEN2 | {"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": 4.0}
    assert config_from_gguf(linear, vocab_size=8, tie_word_embeddings=True).rope_scaled
    assert rope_scaling_from_gguf(linear, None) == LinearScaling(4.0)
    factors = np.array([1, 2, 8], np.float32)
    found = config_from_gguf(
        GGUF_QWEN2, vocab_size=8, tie_word_embeddings=True, rope_factors=factors
    )
    assert found.rope_scaled
    with pytest.raises(UnsupportedModelError, match="only one rope scaling"):
        rope_scaling_from_gguf(linear, factors)
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(UnsupportedModelError, match="finite numbers > 0"):
            rope_scaling_from_gguf(GGUF_QWEN2, np.array([1, wrong], np.float32))


def test_a_config_stored_before_there_were_other_families_is_read() -> None:
    """Such files have neither of the later fields; a plain Llama's still has none of them."""
    earlier = {
        "family": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "rms_norm_eps": 1e-05,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    }
    config = DecoderConfig.from_json(earlier)
    assert (config.attention_bias, config.qk_norm, config.rope_scaled) == (False, False, False)
    assert config.to_json() == earlier


@pytest.mark.parametrize("base", [QWEN25, QWEN3, LLAMA32])
def test_a_stored_config_comes_back(base: dict[str, Any]) -> None:
    config = config_from_huggingface(base)
    assert DecoderConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("format", "layers", "tied", "expected"),
    [
        ("int8", 2, True, "c1b9e238e8c3c52400b3fba19ab30aac777c0543f13ef452d393fac70f20eddd"),
        ("fp16", 2, True, "1060c55dd30edbbb03c67fa23920a61850e220874ed8deb62c660b1aac188da2"),
        ("int8", 1, False, "6a52fb98638d6fbcf1cb67c1a04ed48233ba2cd0c532eebe975f030a10debf09"),
    ],
)
def test_a_plain_llamas_file_is_the_one_it_always_was(
    format: Any, layers: int, tied: bool, expected: str, tmp_path: Path
) -> None:
    """The hashes were taken before other families were known: adapters belong to them."""
    write_tiny_model(tmp_path / "tiny", layers=layers, tied=tied)
    added = add_model(tmp_path, "tiny", str(tmp_path / "tiny"), format)
    assert added.manifest["base_hash"] == f"sha256:{expected}"
    assert FrozenWeights.open(tmp_path / "models/tiny/weights.lorad", verify=True)


def test_smollm2s_file_is_the_one_it_always_was(smollm2_home: Path) -> None:
    weights = FrozenWeights.open(smollm2_home / "models/smollm2-135m/weights.lorad")
    assert weights.content_hash == (
        "sha256:9a7516ef603659e9db69ede4b71ca8fbb63044419ef2e416c9770b65e28fbf3a"
    )
