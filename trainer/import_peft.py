"""Import a PEFT adapter as a version: `python -m trainer.import_peft`, a child of the daemon.

    standard input: a zip file ─▶ adapter_config.json, adapter_model.safetensors
      ─▶ checked against the base model and our adapter ─▶ HOME/PATH, complete or not at all

`--adapter` describes our adapter as a JSON object. The tensors are kept as fp32, whatever they came
as. The outcome is a JSON line on standard output: exit code 0 after `imported`, 1 after `refused`,
whose `status` is that of the answer over HTTP. It needs no torch, so it may run beside a training.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NoReturn

from trainer.durable import ensure_folder, file_sha256, published, remove_unfinished
from trainer.export.peft import (
    CONFIG_FILE,
    IMPORTED_CARD,
    TENSOR_FILE,
    PeftSettings,
    write_peft_files,
)
from trainer.models.config import DecoderConfig
from trainer.peft_import.archive import extract
from trainer.peft_import.expected import Expected
from trainer.peft_import.refused import ImportRefusedError
from trainer.peft_import.settings import check_settings, read_settings
from trainer.peft_import.tensors import ImportedTensors


def import_peft(home: Path, path: Path, adapter: Mapping[str, Any], archive: IO[bytes]) -> None:
    """Write the version's folder `home / path`; it survives a power cut when this returns.

    One that is there already, of the same archive, is left as it is.

    Args:
        home: lorad's home folder.
        path: the version's, relative to it.
        adapter: ours, as the daemon describes it.
        archive: the zip file, seekable.

    Raises:
        ImportRefusedError: it can't be a version of this adapter.
        ValueError: the base model isn't usable.
        OSError: a file can't be read or written; nothing of the version stays.
    """
    final = home / path
    if final.exists():
        return
    manifest = json.loads((home / "models" / adapter["base_model"] / "manifest.json").read_bytes())
    if manifest["base_hash"] != adapter["base_hash"]:
        raise ImportRefusedError(
            f"expected the base model {adapter['base_hash']}, found {manifest['base_hash']} as"
            f" {adapter['base_model']}; make an adapter on that one",
            conflict=True,
        )
    expected = Expected.of(adapter, DecoderConfig.from_json(manifest["config"]))
    ensure_folder(final.parent, home)
    remove_unfinished(final.parent, "import-")  # the daemon has one import at a time
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".tmp-import-{os.getpid()}-") as raw:
        folder = Path(raw)
        extract(archive, folder, expected.most_bytes)
        settings = read_settings(folder / CONFIG_FILE)
        check_settings(settings, expected)
        tensors = ImportedTensors(folder / TENSOR_FILE, expected)
        base_model = settings.get("base_model_name_or_path")
        imported = {
            "base_model": base_model if isinstance(base_model, str) else None,
            "base_known": tensors.base_known,
            "dtype": tensors.dtype,
        }
        arrays = tensors.load()
    with published(final) as folder:
        write_peft_files(
            folder,
            PeftSettings(
                expected.rank,
                expected.alpha,
                expected.targets,
                expected.use_rslora,
                expected.layers,
                expected.config.num_hidden_layers,
            ),
            arrays,
            base_model=expected.base_model,
            base_hash=expected.base_hash,
            card=IMPORTED_CARD,
        )
        (folder / "version.json").write_text(
            json.dumps(_manifest(folder, adapter, imported), indent=1, sort_keys=True),
            encoding="utf-8",
        )


def _manifest(
    folder: Path, adapter: Mapping[str, Any], imported: Mapping[str, Any]
) -> dict[str, Any]:
    unmeasured = {"loss": None, "label_nll": None, "accuracy": None}
    return {
        "manifest_version": 1,
        "run_id": None,
        "adapter_id": adapter["id"],
        "base_model": adapter["base_model"],
        "base_hash": adapter["base_hash"],
        "rank": adapter["rank"],
        "alpha": adapter["alpha"],
        "targets": list(adapter["targets"]),
        "use_rslora": adapter["use_rslora"],
        "top_layers": adapter["top_layers"],
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "imported": imported,
        "metrics": {
            "train": 0,
            "holdout": 0,
            "before": unmeasured,
            "after": unmeasured,
            "active": None,
        },
        "holdout_rows": [],
        "files": {file.name: file_sha256(file) for file in sorted(folder.iterdir())},
    }


def _say(event: str, **members: Any) -> None:
    print(json.dumps({"event": event, **members}, ensure_ascii=False), flush=True)


def _terminate(*_: object) -> NoReturn:
    """SIGTERM ends the import as an exception does: nothing of it stays."""
    raise SystemExit(143)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.import_peft", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--path", type=Path, required=True, help="of the version, in the home")
    parser.add_argument("--adapter", type=json.loads, required=True)
    given = parser.parse_args(arguments)
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        import_peft(given.home, given.path, given.adapter, sys.stdin.buffer)
    except ImportRefusedError as error:
        _say("refused", status=409 if error.conflict else 422, error=str(error))
        return 1
    except ValueError as error:
        _say("refused", status=409, error=str(error))
        return 1
    except OSError as error:
        _say("failed", errno=error.errno, error=str(error.strerror))
        return 1
    _say("imported")
    return 0


if __name__ == "__main__":
    sys.exit(main())
