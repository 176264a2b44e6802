"""A tiny random Llama as a Hugging Face folder: `python -m trainer.models.tiny FOLDER`.

For tests and `lorad demo --tiny`: every part of a real model (grouped heads, chat template, control
tokens, more embedding rows than tokens) in about 100 thousand weights. It knows nothing, but its
gradients are all well away from zero, so that two computations of them can be compared.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from trainer.models.config import DecoderConfig
from trainer.models.config_huggingface import config_from_huggingface
from trainer.models.huggingface import huggingface_name
from trainer.models.layout import tensor_shapes
from trainer.safetensors_file import write_safetensors

_CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_VOCABULARY_ROWS = 288
_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    ffn: int = 192,
    heads: int = 4,
    key_value_heads: int = 2,
    tied: bool = True,
    context: int = 2048,
) -> DecoderConfig:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json.

    Equal arguments give equal bytes. Raises UnsupportedModelError for sizes that don't fit.
    """
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "vocab_size": _VOCABULARY_ROWS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "max_position_embeddings": context,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    decoder = config_from_huggingface(config)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|im_end|>",
            "chat_template": _CHATML,
        },
    )
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    random = np.random.default_rng(seed)
    tensors = {
        huggingface_name(name): _random_weight(random, shape)
        for name, shape in tensor_shapes(decoder).items()
    }
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return decoder


def byte_tokenizer() -> Tokenizer:
    """One token per byte, no merges, behind ChatML's control tokens (ids 0, 1, 2)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: number for number, text in enumerate((*_CONTROL_TOKENS, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in _CONTROL_TOKENS]
    )
    return tokenizer


def _random_weight(random: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Norm weights between 0.5 and 1.5; matrices that keep a unit input near unit size.

    A deviation of 1 / sqrt(inputs) (0.125 at 64) lets activations and gradients neither vanish nor
    explode, whatever the number of layers.
    """
    if len(shape) == 1:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    values: npt.NDArray[np.float64] = random.standard_normal(shape) / np.sqrt(shape[-1])
    return values.astype(np.float32)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m trainer.models.tiny", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--ffn", type=int, default=192)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--key-value-heads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--untied", action="store_true", help="give the model a head of its own")
    given = parser.parse_args(arguments)
    write_tiny_model(
        given.folder,
        seed=given.seed,
        layers=given.layers,
        hidden=given.hidden,
        ffn=given.ffn,
        heads=given.heads,
        key_value_heads=given.key_value_heads,
        tied=not given.untied,
        context=given.context,
    )


if __name__ == "__main__":
    main()
