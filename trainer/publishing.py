"""A finished adapter becomes a version: a folder that is whole, or isn't there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.checkpointing import check_finite
from trainer.durable import ensure_folder, file_sha256, published
from trainer.export.gguf import GGUF_FILE, GGUFExportError, GGUFLora
from trainer.export.peft import write_peft_folder
from trainer.lora import LoraAdapter


class UnchangedError(RuntimeError):
    """Training left the adapter as it was, so there is nothing to publish."""


def check_worth_publishing(adapter: LoraAdapter, steps: int) -> None:
    """Refuse an adapter that adds nothing, or numbers that mean nothing.

    Raises:
        UnchangedError: if every lora_B is still zero.
        FloatingPointError: if a number of it isn't finite.
    """
    check_finite(steps, adapter.to_arrays())
    B = [value for key, value in adapter.named_parameters().items() if "lora_B" in key]
    if not any(bool(lora_B.any()) for lora_B in B):
        raise UnchangedError("expected training to change the adapter, found every lora_B zero")


def publish_version(
    home: Path,
    path: Path,
    adapter: LoraAdapter,
    manifest: Mapping[str, Any],
) -> None:
    """Write the version's folder `home / path`; it survives a power cut when this returns.

    Raises:
        FileExistsError: if it is there already.
        OSError: if it can't be written; nothing of it stays.
    """
    final = home / path
    ensure_folder(final.parent, home)
    base = {key: manifest[key] for key in ("base_model", "base_hash")}
    with published(final) as folder:
        write_peft_folder(folder, adapter, **base)
        # Where GGUF can't express it, whoever asks for that file is told so; it is a version.
        with contextlib.suppress(GGUFExportError):
            lora = GGUFLora.of_peft_folder(folder, adapter.config, **base)
            with (folder / GGUF_FILE).open("wb") as file:
                lora.write(file)
        files = {file.name: file_sha256(file) for file in sorted(folder.iterdir())}
        text = json.dumps({**manifest, "files": files}, indent=1, sort_keys=True)
        (folder / "version.json").write_text(text, encoding="utf-8")
