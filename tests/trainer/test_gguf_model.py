from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.family_gguf import write_gguf_file
from trainer.models.config import UnsupportedModelError
from trainer.models.gguf_model import gguf_name, read_gguf_model, unpermute


@given(heads=st.integers(1, 6), half=st.integers(1, 5), columns=st.integers(1, 4))
def test_unpermute_undoes_llama_cpps_permutation(heads: int, half: int, columns: int) -> None:
    """The formula is that of llama.cpp's convert_hf_to_gguf.py, LlamaModel.permute."""
    rows = heads * half * 2
    weight = np.random.default_rng(0).random((rows, columns)).astype(np.float32)
    permuted = (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )
    assert np.array_equal(unpermute(permuted, heads), weight)


def test_the_names_of_tensors_are_ggufs() -> None:
    assert gguf_name("layers.12.self_attn.o_proj") == "blk.12.attn_output.weight"
    assert gguf_name("embed_tokens") == "token_embd.weight"
    assert gguf_name("lm_head") == "output.weight"


Change = Callable[[dict[str, Any], dict[str, np.ndarray[Any, Any]]], None]


def small_model(path: Path, change: Change, kinds: Mapping[str, int] | None = None) -> Path:
    """A one-layer Llama written with the gguf package, after `change` on its keys and tensors.

    `kinds` names the tensors to be quantised, and ggml's number of the type for each.
    """
    keys: dict[str, Any] = {
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 8,
        "llama.feed_forward_length": 12,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}<s>{% endfor %}",
    }
    shapes = {
        "token_embd": (4, 8),
        "output_norm": (8,),
        "blk.0.attn_norm": (8,),
        "blk.0.ffn_norm": (8,),
        "blk.0.attn_q": (8, 8),
        "blk.0.attn_k": (4, 8),
        "blk.0.attn_v": (4, 8),
        "blk.0.attn_output": (8, 8),
        "blk.0.ffn_gate": (12, 8),
        "blk.0.ffn_up": (12, 8),
        "blk.0.ffn_down": (8, 12),
    }
    tensors = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}
    change(keys, tensors)
    write_gguf_file(path, keys.pop("general.architecture", "llama"), keys, tensors, kinds)
    return path


def test_a_small_model_reads(tmp_path: Path) -> None:
    model = read_gguf_model(small_model(tmp_path / "m.gguf", lambda keys, tensors: None))
    assert model.config.head_dim == 4
    assert model.config.tie_word_embeddings
    assert {source.name: source.shape for source in model.matrices()} == {
        "layers.0.self_attn.qkv_proj": (16, 8),
        "layers.0.self_attn.o_proj": (8, 8),
        "layers.0.mlp.gate_up_proj": (24, 8),
        "layers.0.mlp.down_proj": (8, 12),
        "embed_tokens": (4, 8),
    }


def test_an_output_tensor_unties_the_head(tmp_path: Path) -> None:
    def untie(keys: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        tensors["output.weight"] = np.zeros((4, 8), np.float32)

    model = read_gguf_model(small_model(tmp_path / "m.gguf", untie))
    assert not model.config.tie_word_embeddings
    assert model.matrices()[-1].name == "lm_head"


def randomise(keys: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    random = np.random.default_rng(0)
    for name, values in tensors.items():
        tensors[name] = random.standard_normal(values.shape).astype(np.float32)


@pytest.mark.slow
def test_reads_the_weights_that_transformers_reads(tmp_path: Path) -> None:
    """transformers un-permutes, names and ties on its own."""
    transformers = pytest.importorskip("transformers")
    path = small_model(tmp_path / "m.gguf", randomise)
    model = read_gguf_model(path)
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype="float32"
    )
    state = {name: value.detach().numpy() for name, value in reference.named_parameters()}
    assert model.config.tie_word_embeddings
    assert model.parameters == sum(value.size for value in state.values())
    for source in model.matrices():
        layer, _, part = source.name.rpartition(".")
        parts = {
            "qkv_proj": ["q_proj", "k_proj", "v_proj"],
            "gate_up_proj": ["gate_proj", "up_proj"],
        }.get(part, [part])
        names = [f"model.{layer}.{name}.weight".replace("..", ".") for name in parts]
        expected = np.concatenate([state[name] for name in names])
        assert expected.shape == source.shape
        assert np.array_equal(source.load(), expected), source.name
    for name, vector in model.vectors().items():
        assert np.array_equal(vector, state[f"model.{name}.weight"])


def set_key(key: str, value: Any) -> Change:
    return lambda keys, tensors: keys.update({key: value})


def drop_key(key: str) -> Change:
    return lambda keys, tensors: keys.pop(key)


def put_tensor(name: str, *shape: int) -> Change:
    return lambda keys, tensors: tensors.update({name: np.ones(shape, np.float32)})


def drop_tensor(name: str) -> Change:
    return lambda keys, tensors: tensors.__delitem__(name)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (set_key("general.architecture", "qwen2moe"), r"general\.architecture is 'qwen2moe'"),
        (set_key("general.architecture", "gemma3"), r"general\.architecture is 'gemma3'"),
        (set_key("llama.rope.scaling.type", "yarn"), r"llama\.rope\.scaling\.type is 'yarn'"),
        (set_key("llama.rope.scale_linear", -2.0), r"llama\.rope\.scale_linear is -2"),
        (set_key("llama.expert_count", 8), r"llama\.expert_count is 8"),
        (set_key("llama.attention.sliding_window", 64), r"sliding_window is 64"),
        (set_key("llama.rope.dimension_count", 2), r"llama\.rope\.dimension_count is 2"),
        (set_key("llama.attention.value_length", 6), r"llama\.attention\.value_length is 6"),
        (set_key("llama.attention.key_length", 3), "head_dim is 3"),
        (set_key("llama.attention.head_count_kv", [1, 2]), "head_count_kv"),
        (set_key("llama.attention.head_count_kv", 3), "num_key_value_heads 3"),
        (set_key("llama.attention.head_count", 3), r"llama\.embedding_length 8 is no multiple"),
        (set_key("llama.attention.head_count", 0), r"llama\.attention\.head_count is 0"),
        (set_key("llama.block_count", 10**9), "1000000000 layers"),
        (set_key("llama.block_count", 2), r"tensor blk\.1\.\S+ is missing"),
        (drop_key("llama.feed_forward_length"), r"llama\.feed_forward_length is missing"),
        (drop_key("llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon is missing"),
        (drop_key("tokenizer.chat_template"), r"tokenizer\.chat_template is missing"),
        (drop_tensor("token_embd.weight"), r"tensor token_embd\.weight is missing"),
        (drop_tensor("blk.0.ffn_up.weight"), r"tensor blk\.0\.ffn_up\.weight is missing"),
        (put_tensor("blk.0.ffn_up.weight", 8, 12), r"blk\.0\.ffn_up\.weight: expected .*\[12, 8\]"),
        (put_tensor("blk.0.attn_q.bias", 8), r"tensor blk\.0\.attn_q\.bias is one"),
        (put_tensor("rope_freqs.weight", 3), r"rope_freqs\.weight: expected the shape \[2\]"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused_by_name(
    change: Change, named: str, tmp_path: Path
) -> None:
    path = small_model(tmp_path / "m.gguf", change)
    with pytest.raises(UnsupportedModelError, match=named):
        read_gguf_model(path)
