import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.models.base_model import BaseModel
from trainer.models.config import UnsupportedModelError
from trainer.models.huggingface import read_huggingface_model
from trainer.models.tiny import byte_tokenizer
from trainer.safetensors_file import SafetensorsFile, write_safetensors
from trainer.tokens import ChatTokenizer


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def edit_json(path: Path, **members: Any) -> None:
    value = json.loads(path.read_text()) | members
    value = {key: item for key, item in value.items() if item != "absent"}
    path.write_text(json.dumps(value))


def load_tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    file = SafetensorsFile(folder / "model.safetensors")
    return {name: file.load(name) for name in file.names()}


def edit_tensors(folder: Path, change: Callable[[dict[str, np.ndarray[Any, Any]]], object]) -> None:
    tensors = load_tensors(folder)
    change(tensors)
    write_safetensors(folder / "model.safetensors", tensors, {})


def assert_same_weights(model: BaseModel, state: dict[str, np.ndarray[Any, Any]]) -> None:
    for source in model.matrices():
        layer, _, part = source.name.rpartition(".")
        parts = {
            "qkv_proj": ["q_proj", "k_proj", "v_proj"],
            "gate_up_proj": ["gate_proj", "up_proj"],
        }.get(part, [part])
        names = [f"model.{layer}.{name}.weight".replace("..", ".") for name in parts]
        if source.name == "lm_head":
            names = ["lm_head.weight"]
        expected = np.concatenate([state[name] for name in names])
        assert source.shape == expected.shape
        assert np.array_equal(source.load(), expected), source.name
    for name, vector in model.vectors().items():
        assert np.array_equal(vector, state[f"model.{name}.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
def test_reads_what_transformers_saves_in_shards(
    dtype: str, tied: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=10,
        tie_word_embeddings=tied,
        max_position_embeddings=128,
    )
    saved = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    saved.save_pretrained(tmp_path, max_shard_size="20KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_folder / name, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = read_huggingface_model(tmp_path)
    assert model.config.head_dim == 10
    assert model.config.tie_word_embeddings == tied
    assert_same_weights(
        model, {name: value.float().numpy() for name, value in saved.state_dict().items()}
    )
    assert model.parameters == sum(p.numel() for p in saved.parameters())


def test_reads_the_tiny_model(folder: Path) -> None:
    model = read_huggingface_model(folder)
    assert model.source_format == "huggingface"
    assert_same_weights(model, load_tensors(folder))
    assert model.special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }


def test_a_saved_copy_of_the_tied_head_is_accepted(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
    names = [source.name for source in read_huggingface_model(folder).matrices()]
    assert "lm_head" not in names


def test_stored_rotary_frequencies_are_ignored(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(folder, lambda t: t.update({name: np.ones(8, np.float32)}))
    read_huggingface_model(folder)


TENSOR_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing": (
        lambda t: t.pop("model.layers.1.mlp.up_proj.weight"),
        r"tensor model\.layers\.1\.mlp\.up_proj\.weight is missing",
    ),
    "extra": (
        lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}),
        r"tensor model\.layers\.0\.self_attn\.q_proj\.bias is one",
    ),
    "extra layer": (
        lambda t: t.update({"model.layers.2.input_layernorm.weight": np.ones(64, np.float32)}),
        r"tensor model\.layers\.2\.input_layernorm\.weight is one",
    ),
    "transposed": (
        lambda t: t.update(
            {"model.layers.0.mlp.up_proj.weight": t["model.layers.0.mlp.up_proj.weight"].T}
        ),
        r"up_proj\.weight: expected the shape \[192, 64\] .* found \[64, 192\]",
    ),
    "other rank": (
        lambda t: t.update({"model.norm.weight": np.ones((1, 64), np.float32)}),
        r"tensor model\.norm\.weight: expected the shape \[64\]",
    ),
    "head of its own": (
        lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}),
        r"lm_head\.weight differs from model\.embed_tokens\.weight",
    ),
}


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_a_wrong_tensor_is_named(fault: str, folder: Path) -> None:
    change, named = TENSOR_FAULTS[fault]
    edit_tensors(folder, change)
    with pytest.raises(UnsupportedModelError, match=named):
        read_huggingface_model(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(UnsupportedModelError, match=f"^{name} is missing"):
        read_huggingface_model(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b""])
def test_a_broken_file_is_named(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=name):
        read_huggingface_model(folder)


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ({}, "weight_map is missing"),
        ({"weight_map": {"w": "../model.safetensors"}}, "expected a file of this folder"),
        ({"weight_map": {"w": 7}}, "expected a file of this folder"),
        ({"weight_map": {"w": "absent.safetensors"}}, "absent.safetensors is missing"),
        ({"weight_map": {"w": "model.safetensors"}}, "promises tensor w"),
    ],
)
def test_a_wrong_index_is_named(index: dict[str, Any], named: str, folder: Path) -> None:
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(UnsupportedModelError, match=named):
        read_huggingface_model(folder)


def test_a_tensor_in_two_shards_is_named(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "two.safetensors")
    index = {
        "model.norm.weight": "model.safetensors",
        "model.embed_tokens.weight": "two.safetensors",
    }
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    with pytest.raises(UnsupportedModelError, match="is in two of the model's files"):
        read_huggingface_model(folder)


def test_special_tokens_may_be_objects(folder: Path) -> None:
    edit_json(
        folder / "tokenizer_config.json",
        bos_token={"__type": "AddedToken", "content": "<|im_start|>", "lstrip": False},
        unk_token=None,
    )
    special_tokens = read_huggingface_model(folder).special_tokens
    assert special_tokens["bos_token"] == "<|im_start|>"
    assert special_tokens["unk_token"] is None


def test_the_template_file_wins_over_the_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}<|im_end|>")
    assert read_huggingface_model(folder).chat_template == "{{ messages[0].content }}<|im_end|>"


def test_the_default_of_several_templates_is_taken(folder: Path) -> None:
    templates = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]
    edit_json(folder / "tokenizer_config.json", chat_template=templates)
    assert read_huggingface_model(folder).chat_template == "y"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"chat_template": "absent"}, "no chat template"),
        ({"chat_template": [{"name": "rag", "template": "x"}]}, "no chat template"),
        ({"bos_token": "<s>"}, "bos_token is '<s>', which tokenizer.json doesn't know"),
        ({"bos_token": 1}, "bos_token is 1"),
        ({"added_tokens_decoder": {"x": {}}}, "added_tokens_decoder is damaged"),
        ({"added_tokens_decoder": ["x"]}, "added_tokens_decoder is damaged"),
        (
            {"added_tokens_decoder": {"400": {"content": "<x>"}}},
            "'<x>' the id 400, tokenizer.json gives it 259",
        ),
    ],
)
def test_a_wrong_tokenizer_configuration_is_named(
    members: dict[str, Any], named: str, folder: Path
) -> None:
    edit_json(folder / "tokenizer_config.json", **members)
    with pytest.raises(UnsupportedModelError, match=named):
        read_huggingface_model(folder)


def test_a_random_tokenizer_is_refused(folder: Path) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    data["model"]["dropout"] = 0.1
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UnsupportedModelError, match="dropout"):
        read_huggingface_model(folder)


@pytest.mark.slow
def test_tokens_known_only_to_the_configuration_are_added_as_transformers_adds_them(
    folder: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    data = json.loads(byte_tokenizer().to_str())
    data["added_tokens"] = data["added_tokens"][:1]  # the ChatML tokens stay in the vocabulary
    data["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (folder / "tokenizer.json").write_text(json.dumps(data))
    edit_json(
        folder / "tokenizer_config.json",
        added_tokens_decoder={
            "0": {"content": "<|endoftext|>", "special": True},
            "259": {"content": "<tool>", "special": False},
        },
    )
    model = read_huggingface_model(folder)
    ours = ChatTokenizer(model.tokenizer.to_str(), model.chat_template, model.special_tokens)
    theirs = transformers.AutoTokenizer.from_pretrained(str(folder))
    messages = [{"role": "user", "content": "hé 1 two"}, {"role": "assistant", "content": "🎉"}]
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ours.prompt_ids(messages) == expected
    assert model.tokenizer.encode("<tool>").ids == [259] == theirs.encode("<tool>")
