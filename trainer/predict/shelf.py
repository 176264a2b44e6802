"""The adapters that were asked for of late, each in tensors of its own.

A version never changes, so an adapter that is kept is the one on the disk for as long as its folder
is there. Nothing that was computed with an adapter is kept with it, nor with the base.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.export.peft import CONFIG_FILE, TENSOR_FILE, load_peft_folder
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.predict.refused import Refused

_MANIFEST = "version.json"


def adapter_bytes(adapter: LoraAdapter | None) -> int:
    """What it takes of memory, its gradient, which nobody asks for, included."""
    return 0 if adapter is None else 2 * adapter.flat.nbytes


class AdapterShelf:
    """The adapters of one base model, the last used first to stay."""

    def __init__(self, home: Path, config: DecoderConfig, base_hash: str, keep_bytes: int) -> None:
        """Empty. Beside the one in use, so many bytes of others stay."""
        self._home, self._config, self._base_hash = home, config, base_hash
        self._keep_bytes = keep_bytes
        self._kept: dict[tuple[str, int, int], LoraAdapter] = {}

    def get(self, version: str | None) -> LoraAdapter | None:
        """The adapter of a version's folder, relative to the home; None for the bare base.

        Raises:
            Refused: if it isn't there, is on another base, or can't be read.
        """
        if version is None:
            return None
        folder = self._home / version
        try:
            status = (folder / TENSOR_FILE).stat()
        except OSError:
            self._drop(version)
            raise Refused(
                409, f"expected the version's folder {version}, found none; ask another version"
            ) from None
        key = (version, status.st_ino, status.st_mtime_ns)
        adapter = self._kept.pop(key, None)
        if adapter is None:
            self._drop(version)
            adapter = self._read(version, folder)
        self._make_room()
        self._kept[key] = adapter
        return adapter

    def clear(self) -> None:
        """Let go of all."""
        self._kept.clear()

    def _read(self, version: str, folder: Path) -> LoraAdapter:
        try:
            manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
            base_hash = manifest["base_hash"]
            if base_hash != self._base_hash:
                raise Refused(
                    409,
                    f"expected {version} to be on the base model {self._base_hash}, found that it"
                    f" is on {base_hash}; train it anew on this one",
                )
            return _adapter_in(folder, self._config)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refused(
                409,
                f"expected a whole adapter in {version}, found a {type(error).__name__} when it"
                " was read; activate another version",
            ) from error

    def _make_room(self) -> None:
        while sum(map(adapter_bytes, self._kept.values())) > self._keep_bytes:
            del self._kept[next(iter(self._kept))]

    def _drop(self, version: str) -> None:
        for key in [key for key in self._kept if key[0] == version]:
            del self._kept[key]


def _adapter_in(folder: Path, config: DecoderConfig) -> LoraAdapter:
    """The adapter of a PEFT folder of ours, in the shape that its configuration names."""
    shape: dict[str, Any] = json.loads((folder / CONFIG_FILE).read_bytes())
    layers = shape.get("layers_to_transform")
    depth = config.num_hidden_layers
    if layers is not None and layers != list(range(depth - len(layers), depth)):
        raise ValueError(f"expected an adapter of the top layers of {depth}, found {layers}")
    adapter = LoraAdapter(
        config,
        rank=shape["r"],
        alpha=float(shape["lora_alpha"]),
        targets=shape["target_modules"],
        use_rslora=shape["use_rslora"],
        layers=None if layers is None else len(layers),
    )
    load_peft_folder(folder, adapter)
    return adapter
