"""A base model out of a Hugging Face folder.

config.json
model.safetensors, or model.safetensors.index.json and the files it names
tokenizer.json
tokenizer_config.json (special tokens, chat_template), chat_template.jinja
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer

from trainer.models.base_model import BaseModel, check_tensors
from trainer.models.config import UnsupportedModelError
from trainer.models.config_huggingface import (
    config_from_huggingface,
    rope_scaling_from_huggingface,
)
from trainer.safetensors_file import SafetensorsFile

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
_INDEX = "model.safetensors.index.json"


def read_huggingface_model(folder: Path) -> BaseModel:
    """Open the folder's files and check everything but the tensors' values.

    Raises UnsupportedModelError or SafetensorsError naming the file, field or tensor, OSError if a
    file can't be read.
    """
    description = _read_json(folder / "config.json")
    config = config_from_huggingface(description)
    tensors = _Tensors(folder)
    tied_head = {"lm_head.weight"} if config.tie_word_embeddings else set()
    derived = {name for name in tensors.shapes if name.endswith(".rotary_emb.inv_freq")}
    check_tensors(config, tensors.shapes, huggingface_name, ignored=derived | tied_head)
    if tied_head & tensors.shapes.keys():
        tensors.require_equal("lm_head.weight", huggingface_name("embed_tokens"))
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    special_tokens = {name: _token_text(tokenizer_config, name) for name in _SPECIAL_TOKENS}
    return BaseModel(
        config=config,
        source_format="huggingface",
        tokenizer=_read_tokenizer(folder / "tokenizer.json", tokenizer_config, special_tokens),
        chat_template=_read_chat_template(folder, tokenizer_config),
        special_tokens=special_tokens,
        load=lambda name: tensors.load(huggingface_name(name)),
        rope_scaling=rope_scaling_from_huggingface(description),
    )


def huggingface_name(name: str) -> str:
    """The file's name of a decoder's tensor: layers.3.mlp.up_proj is model.layers.3.…weight."""
    if name == "lm_head":
        return "lm_head.weight"
    return f"model.{name}" if name.endswith(".bias") else f"model.{name}.weight"


class _Tensors:
    """The tensors of one or several safetensors files, by name."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, SafetensorsFile] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file_name, promised in _weight_files(folder).items():
            path = folder / file_name
            if not path.is_file():
                raise UnsupportedModelError(
                    f"{file_name} is missing from {folder.name}; expected the model's safetensors"
                )
            file = SafetensorsFile(path)
            for name in file.names():
                if name in self._files:
                    raise UnsupportedModelError(f"tensor {name} is in two of the model's files")
                self._files[name] = file
                self.shapes[name] = file.shape(name)
            for name in sorted(promised - set(file.names())):
                raise UnsupportedModelError(
                    f"{_INDEX} promises tensor {name} in {file_name}, which doesn't hold it"
                )

    def load(self, name: str) -> npt.NDArray[np.float32]:
        return self._files[name].load(name)

    def require_equal(self, left: str, right: str) -> None:
        """Refuse a head that config.json calls tied but that has values of its own."""
        if self.shapes[left] != self.shapes[right] or not np.array_equal(
            self.load(left), self.load(right)
        ):
            raise UnsupportedModelError(
                f"config.json says tie_word_embeddings, but tensor {left} differs from {right}"
            )


def _weight_files(folder: Path) -> dict[str, set[str]]:
    """The folder's safetensors files, each with the tensors the index promises in it."""
    if not (folder / _INDEX).is_file():
        return {"model.safetensors": set()}
    weight_map = _read_json(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UnsupportedModelError(f"{_INDEX}: weight_map is missing or no object")
    files: dict[str, set[str]] = {}
    for tensor, file_name in weight_map.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            raise UnsupportedModelError(
                f"{_INDEX}: tensor {tensor} lies in {file_name!r}; expected a file of this folder"
            )
        files.setdefault(file_name, set()).add(tensor)
    return files


def _read_tokenizer(
    path: Path, config: Mapping[str, Any], special_tokens: Mapping[str, str | None]
) -> Tokenizer:
    """tokenizer.json with the added tokens that only tokenizer_config.json knows.

    transformers adds those when it loads the folder; what it would give a new id is refused, since
    the model has no row for it.
    """
    text = _read_text(path)
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises bare Exception
        raise UnsupportedModelError(f"{path.name} is no tokenizer we can load ({error})") from error
    if json.loads(text)["model"].get("dropout"):
        raise UnsupportedModelError(
            f"{path.name} has a dropout; ids would differ from one encoding to the next"
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for number, token in _declared_tokens(config):
        _add_token(tokenizer, token, number)
    for name, content in special_tokens.items():
        if content is None:
            continue
        known = tokenizer.token_to_id(content)
        if known is None:
            raise UnsupportedModelError(
                f"tokenizer_config.json: {name} is {content!r}, which tokenizer.json doesn't know"
            )
        _add_token(tokenizer, AddedToken(content, special=True, normalized=False), known)
    return tokenizer


def _declared_tokens(config: Mapping[str, Any]) -> list[tuple[int, AddedToken]]:
    """`added_tokens_decoder` of tokenizer_config.json, by id."""
    declared = config.get("added_tokens_decoder", {})
    try:
        return [
            (
                int(number),
                AddedToken(
                    token["content"],
                    single_word=bool(token.get("single_word", False)),
                    lstrip=bool(token.get("lstrip", False)),
                    rstrip=bool(token.get("rstrip", False)),
                    normalized=bool(token.get("normalized", False)),
                    special=bool(token.get("special", False)),
                ),
            )
            for number, token in sorted(declared.items(), key=lambda entry: int(entry[0]))
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedModelError(
            "tokenizer_config.json: added_tokens_decoder is damaged; "
            'expected {"id": {"content": ...}}'
        ) from error


def _add_token(tokenizer: Tokenizer, token: AddedToken, expected: int) -> None:
    """Make `token` an added token under the id it must have, unless it is one already."""
    if expected in tokenizer.get_added_tokens_decoder():
        return
    if token.special:
        tokenizer.add_special_tokens([token])
    else:
        tokenizer.add_tokens([token])
    found = tokenizer.token_to_id(token.content)
    if found != expected:
        raise UnsupportedModelError(
            f"tokenizer_config.json gives {token.content!r} the id {expected}, "
            f"tokenizer.json gives it {found}"
        )


def _token_text(config: Mapping[str, Any], name: str) -> str | None:
    """A special token, written as a string or as an object with `content`."""
    value = config.get(name)
    if isinstance(value, Mapping):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise UnsupportedModelError(f"tokenizer_config.json: {name} is {value!r}; expected a text")
    return value


def _read_chat_template(folder: Path, config: Mapping[str, Any]) -> str:
    """chat_template.jinja, which transformers prefers, else the one in tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return _read_text(path)
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {item.get("name"): item.get("template") for item in template}.get("default")
    if not isinstance(template, str):
        raise UnsupportedModelError(
            f"{folder.name} has no chat template; use an instruction-tuned model that brings one"
        )
    return template


def _read_json(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(f"{path.name} is no valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(f"{path.name} is no JSON object")
    return value


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise UnsupportedModelError(f"{path.name} is missing from the folder {path.parent.name}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedModelError(f"{path.name} is not valid UTF-8") from error
