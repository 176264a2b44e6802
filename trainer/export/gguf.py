"""The adapter as a GGUF LoRA, which llama.cpp adds to a GGUF file of the same base model.

    PEFT                                      GGUF
    layers.3.self_attn.q_proj.lora_A          blk.3.attn_q.weight.lora_a   [rank, in]
    layers.3.self_attn.q_proj.lora_B          blk.3.attn_q.weight.lora_b   [out, rank]
    lora_alpha, use_rslora                    adapter.lora.alpha = scale · rank

The rows of a Llama's q and k are in another order in GGUF, and so are those of their lora_b.
llama.cpp multiplies by alpha / rank, whatever method made the adapter, and by 1 where alpha is 0;
layers and linears that aren't in the file have no adapter. Most of what is wrong in such a file it
doesn't notice, and some of it ends the process, so whatever isn't certain to be right is refused.

`python -m trainer.export.gguf --home HOME --version adapters/3/versions/run-00000007` writes the
file to standard output for a version that an earlier lorad made without it: exit code 0, 65 after a
sentence on standard error that says why not, or 74 where the disk is full. It needs no torch.

Format: see `trainer/models/gguf.py`; llama.cpp's `src/llama-adapter.cpp` reads it.
"""

import argparse
import errno
import json
import math
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trainer.export.peft import CONFIG_FILE, TENSOR_FILE
from trainer.models.config import DecoderConfig
from trainer.models.gguf_model import gguf_name, permute
from trainer.models.layout import LINEARS, MODULES, linear_shape
from trainer.peft_keys import parsed_peft_key
from trainer.safetensors_file import SafetensorsFile

GGUF_FILE = "adapter.gguf"
REFUSED, DISK_FULL = 65, 74
"""Exit codes: the version can't be written as GGUF; it can, but not here."""

_ALIGNMENT = 32
_UINT32, _FLOAT32, _STRING = 4, 6, 8
_F32 = 0
_SMALLEST_ALPHA = float(np.finfo(np.float32).tiny)
_LARGEST_ALPHA = float(np.finfo(np.float32).max)
_UNDERSTOOD = frozenset(
    {
        "base_model_name_or_path",
        "inference_mode",
        "init_lora_weights",
        "layers_to_transform",
        "lora_alpha",
        "peft_type",
        "r",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
"""Settings of adapter_config.json that the tensors' names tell too, or that are heeded here."""


class GGUFExportError(ValueError):
    """An adapter that a GGUF LoRA can't express; names the setting or the tensor."""


@dataclass(frozen=True)
class GGUFLora:
    """A file that is certain to be right, ready to be written."""

    metadata: Mapping[str, str | int | float]
    """A whole number is written as uint32, a fraction as float32."""
    tensors: Mapping[str, npt.NDArray[np.float32]]

    @classmethod
    def of_peft_folder(
        cls, folder: Path, config: DecoderConfig, *, base_model: str, base_hash: str
    ) -> "GGUFLora":
        """Read and check what `write_peft_folder` wrote for a base model of this shape.

        Raises:
            GGUFExportError: for what GGUF can't express or llama.cpp would take for something else.
            ValueError, OSError: if a file is damaged or missing.
        """
        settings = json.loads((folder / CONFIG_FILE).read_bytes())
        rank, alpha = _check_settings(settings)
        arrays = SafetensorsFile(folder / TENSOR_FILE)
        tensors = {}
        for layer, linear in _adapted(arrays.names(), config):
            base = f"layers.{layer}.{MODULES[linear]}.{linear}"
            out, inputs = linear_shape(config, linear)
            A = _load(arrays, f"{base}.lora_A", (rank, inputs))
            B = _load(arrays, f"{base}.lora_B", (out, rank))
            tensors[f"{gguf_name(base)}.lora_a"] = A
            tensors[f"{gguf_name(base)}.lora_b"] = _in_gguf_order(B, linear, config)
        metadata: dict[str, str | int | float] = {
            "general.architecture": config.family,
            "general.type": "adapter",
            "general.name": f"A LoRA adapter made by lorad for {base_model}",
            "general.base_model.count": 1,
            "general.base_model.0.name": base_model,
            "general.base_model.0.version": base_hash,
            "adapter.type": "lora",
            "adapter.lora.alpha": alpha,
        }
        return cls(metadata, tensors)

    def write(self, file: IO[bytes]) -> None:
        """Write it all; the same adapter gives the same bytes."""
        header = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.metadata))
        header += b"".join(_string(key) + _value(value) for key, value in self.metadata.items())
        offset = 0
        for name, values in self.tensors.items():
            # dimensions come fastest first
            rows, columns = values.shape
            header += _string(name) + struct.pack("<IQQIQ", 2, columns, rows, _F32, offset)
            offset += values.nbytes + -values.nbytes % _ALIGNMENT
        file.write(header + bytes(-len(header) % _ALIGNMENT))
        for values in self.tensors.values():
            file.write(np.ascontiguousarray(values, "<f4").data)
            file.write(bytes(-values.nbytes % _ALIGNMENT))


def _check_settings(settings: Mapping[str, Any]) -> tuple[int, float]:
    """The rank, and the alpha that gives PEFT's scale when llama.cpp divides it by the rank."""
    if settings.get("peft_type") != "LORA":
        raise GGUFExportError(
            f"expected a LoRA adapter, found {settings.get('peft_type')!r}: take it as PEFT"
        )
    for key, value in settings.items():
        if key not in _UNDERSTOOD and value not in (None, False, 0, "none", [], {}):
            raise GGUFExportError(
                f"expected a plain LoRA adapter, found {key} {value!r}, which llama.cpp would "
                "leave out: take it as PEFT"
            )
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise GGUFExportError(f"expected a rank of at least 1, found {rank!r}: take it as PEFT")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise GGUFExportError(f"expected a number as lora_alpha, found {alpha!r}: take it as PEFT")
    written = alpha * (math.sqrt(rank) if settings.get("use_rslora") else 1.0)
    if not _SMALLEST_ALPHA <= written <= _LARGEST_ALPHA:
        raise GGUFExportError(
            f"expected an alpha within float32 and above 0, which llama.cpp takes for no alpha, "
            f"found {written!r}: take the adapter as PEFT, or train one with another alpha"
        )
    return rank, written


def _adapted(names: Sequence[str], config: DecoderConfig) -> list[tuple[int, str]]:
    """Layer and name of each linear with an adapter, in the order of the computation."""
    found: dict[tuple[int, str], set[str]] = {}
    for name in names:
        parsed = parsed_peft_key(name)
        if parsed is None or parsed[0] >= config.num_hidden_layers:
            raise GGUFExportError(
                f"expected adapters of the linears of {config.num_hidden_layers} layers, found "
                f"{name}, which llama.cpp wouldn't find in the base model: take it as PEFT"
            )
        layer, linear, part = parsed
        found.setdefault((layer, linear), set()).add(part)
    for (layer, linear), parts in found.items():
        if len(parts) != 2:
            raise GGUFExportError(
                f"expected lora_A and lora_B of {linear} in layer {layer}, found "
                f"{''.join(parts)} alone: the version is damaged, train again"
            )
    if not found:
        raise GGUFExportError(f"expected adapters in {TENSOR_FILE}, found none: train again")
    return sorted(found, key=lambda place: (place[0], LINEARS.index(place[1])))


def _load(arrays: SafetensorsFile, name: str, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    values = arrays.load(f"base_model.model.model.{name}.weight")
    if values.shape != shape:
        raise GGUFExportError(
            f"expected {name} of shape {list(shape)}, as the base model and the rank ask for, "
            f"found {list(values.shape)}: the version is of another base model"
        )
    if not np.isfinite(values).all():
        raise GGUFExportError(f"expected finite numbers in {name}, found others: train again")
    return values


def _in_gguf_order(
    B: npt.NDArray[np.float32], linear: str, config: DecoderConfig
) -> npt.NDArray[np.float32]:
    """The rows of lora_B as llama.cpp has those of the base's linear."""
    if config.family == "llama" and linear == "q_proj":
        return permute(B, config.num_attention_heads)
    if config.family == "llama" and linear == "k_proj":
        return permute(B, config.num_key_value_heads)
    return B


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value: str | int | float) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    return struct.pack("<If", _FLOAT32, value)  # any other type of alpha ends llama.cpp's process


def gguf_of_version(home: Path, version: Path) -> GGUFLora:
    """The file of the version in the folder `home / version`.

    Raises:
        GGUFExportError: as `GGUFLora.of_peft_folder`; if the base model isn't there any more.
        ValueError, OSError: if a file is damaged or missing.
    """
    made = json.loads((home / version / "version.json").read_bytes())
    name, base_hash = made["base_model"], made["base_hash"]
    try:
        model = json.loads((home / "models" / name / "manifest.json").read_bytes())
    except FileNotFoundError:
        raise GGUFExportError(
            f"expected base model {name} with {base_hash}, whose shape an older version's GGUF is "
            f"made by, found none: add it again with lorad model add {name}, or take it as PEFT"
        ) from None
    if model["base_hash"] != base_hash:
        raise GGUFExportError(
            f"expected base model {name} with {base_hash}, found {model['base_hash']}; adapters "
            "belong to one base: add that one again, or take the version as PEFT"
        )
    config = DecoderConfig.from_json(model["config"])
    return GGUFLora.of_peft_folder(home / version, config, base_model=name, base_hash=base_hash)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.export.gguf")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--version", type=Path, required=True, help="its folder, below the home")
    given = parser.parse_args(arguments)
    try:
        lora = gguf_of_version(given.home, given.version)
    except ValueError as error:
        print(error, file=sys.stderr)
        return REFUSED
    try:
        with open(os.dup(sys.stdout.fileno()), "wb") as file:  # noqa: PTH123 - it has no path
            lora.write(file)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return DISK_FULL
    return 0


if __name__ == "__main__":
    sys.exit(main())
