"""Add a base model to the home folder: `python -m trainer.add_model`, a child of the daemon.

    source: a GGUF file, a Hugging Face folder, or an installed package that ships one
      -> weights.lorad, tokenizer.json, manifest.json in models/.tmp-NAME-PID -> models/NAME

The folder appears complete or not at all. Progress and outcome are JSON lines on stdout: exit code
0 after an `added` line, 1 after an `error` line.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from npu.format_shares import format_shares
from npu.weights import FrozenWeights, WeightFormat, write_frozen_weights
from trainer.calibration.options import (
    DEFAULT_TOLERANCE,
    AutoFormat,
    CalibrationSettings,
    PhaseProgress,
)
from trainer.durable import published
from trainer.models.base_model import BaseModel
from trainer.models.origin import origin_sha256, read_model
from trainer.tokens import ChatTokenizer
from trainer.weight_plan import (
    DEFAULT_FORMAT,
    FORMAT_CHOICES,
    FormatChoice,
    plan_formats,
)

Progress = PhaseProgress
"""Called with what is being done, matrices done and matrices in all."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TRIAL_SECONDS = 20


class AddModelError(ValueError):
    """A model can't be added; says why and what to do."""


@dataclass(frozen=True)
class Added:
    """The model's manifest, and whether it was there already with the same content."""

    manifest: dict[str, Any]
    unchanged: bool


@dataclass(frozen=True)
class Source:
    """Where a model comes from: a GGUF file or a folder, and the name that goes on record."""

    path: Path
    name: str


def add_model(
    home: Path,
    name: str,
    source: str,
    format: FormatChoice | AutoFormat = DEFAULT_FORMAT,
    progress: Progress | None = None,
) -> Added:
    """Read `source` (a path or an installed package's name) and write `home`/models/`name`.

    An AutoFormat measures what each format costs the gradients before it chooses; its record is
    written beside the weights.

    Raises ValueError, of whichever module found the fault, or OSError; nothing is left behind then.
    """
    if not _NAME.fullmatch(name):
        raise AddModelError(
            f"the name {name!r} isn't allowed; use 1 to 64 of a-z 0-9 . _ - and begin with a "
            "letter or digit"
        )
    found = find_source(source)
    model = read_model(found.path)
    origin = {"path": str(found.path.resolve()), "sha256": origin_sha256(found.path)}
    final = home / "models" / name
    _remove_abandoned(final.parent)
    manifest: dict[str, Any] = {}
    try:
        with published(final) as folder:
            manifest = _write_model(
                folder, model, name, found.name, origin, format, progress or _no_progress
            )
    except FileExistsError:
        existing: dict[str, Any] = json.loads((final / "manifest.json").read_text(encoding="utf-8"))
        if existing["base_hash"] != manifest["base_hash"]:
            raise AddModelError(
                f"model {name} exists with another content ({existing['format']}, "
                f"{existing['base_hash']}; this one is {manifest['format']}, "
                f"{manifest['base_hash']}); choose another name or remove it first"
            ) from None
        return Added(existing, unchanged=True)
    return Added(manifest, unchanged=False)


def find_source(source: str) -> Source:
    """The file or folder meant by a path or by the name of an installed package.

    A package is looked up in its metadata and never imported. Raises AddModelError.
    """
    path = Path(source).expanduser()
    if source and (path.is_dir() or path.is_file()):
        return Source(path, path.resolve().name)
    try:
        distribution = importlib.metadata.distribution(source)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        raise AddModelError(
            f"{source!r} is neither a file, a folder nor an installed package; check the spelling"
        ) from None
    files = distribution.files or []
    weights = {file.parent for file in files if file.suffix == ".safetensors"}
    candidates = [file for file in files if file.suffix == ".gguf"]
    candidates += [f.parent for f in files if f.name == "config.json" and f.parent in weights]
    if len(candidates) != 1:
        shown = ", ".join(map(str, candidates)) or "none"
        raise AddModelError(
            f"package {source} ships {len(candidates)} models ({shown}); expected one: "
            "give the path of the one you mean"
        )
    located = Path(str(distribution.locate_file(candidates[0])))
    if not located.exists():
        raise AddModelError(f"{candidates[0]} of package {source} is missing; install it again")
    return Source(located, distribution.metadata["Name"])


def _write_model(
    folder: Path,
    model: BaseModel,
    name: str,
    source: str,
    origin: Mapping[str, str],
    format: FormatChoice | AutoFormat,
    progress: Progress,
) -> dict[str, Any]:
    """Write the model's files into `folder`; its manifest."""
    tokenizer_json = model.tokenizer.to_str()
    with _time_limit(_TRIAL_SECONDS):
        chat = ChatTokenizer(tokenizer_json, model.chat_template, model.special_tokens)
        chat.verify()
        template_tokens = chat.template_tokens
    if chat.largest_id >= model.config.vocab_size:
        raise AddModelError(
            f"the tokenizer gives ids up to {chat.largest_id}, but the model has only "
            f"{model.config.vocab_size} rows of embeddings"
        )
    tokenizer_bytes = tokenizer_json.encode("utf-8")
    (folder / "tokenizer.json").write_bytes(tokenizer_bytes)
    tokenizer_sha256 = hashlib.sha256(tokenizer_bytes).hexdigest()
    matrices = model.matrices()
    metadata = {
        "config": model.config.to_json(),
        "tokenizer_sha256": tokenizer_sha256,
        "chat_template_sha256": hashlib.sha256(model.chat_template.encode()).hexdigest(),
        "source_format": model.source_format,
    }

    def write(formats: Mapping[str, WeightFormat]) -> str:
        return write_frozen_weights(
            folder / "weights.lorad",
            metadata,
            matrices,
            model.vectors(),
            format=formats,
            progress=partial(progress, "writing"),
        )

    if isinstance(format, AutoFormat):
        # Here, because they load torch, which nothing else that adds a model needs.
        from trainer.calibration.auto import auto_formats
        from trainer.calibration.record import write_record

        with auto_formats(model, chat, format, folder, progress) as choice:
            formats = dict(choice.mix.formats)
            base_hash = write(formats)
            weights = FrozenWeights.open(folder / "weights.lorad")
            write_record(
                folder, choice.record(weights, {"name": source, "format": model.source_format})
            )
            weights.close()
    else:
        formats = plan_formats(format, matrices)
        base_hash = write(formats)
    manifest = {
        "manifest_version": 1,
        "name": name,
        "base_hash": base_hash,
        "format": "auto" if isinstance(format, AutoFormat) else format,
        "formats": format_shares((formats[source.name], source.shape) for source in matrices),
        "matrix_formats": formats,
        "source": source,
        "origin": origin,
        "parameters": model.parameters,
        "context_length": model.config.max_position_embeddings,
        "vocab_size": model.config.vocab_size,
        "config": model.config.to_json(),
        "weights": {
            "file": "weights.lorad",
            "bytes": (folder / "weights.lorad").stat().st_size,
        },
        "tokenizer": {"file": "tokenizer.json", "sha256": tokenizer_sha256},
        "chat_template": model.chat_template,
        "special_tokens": dict(model.special_tokens),
        "template_tokens": template_tokens,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps(manifest, ensure_ascii=False, indent=2)
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    return manifest


def _remove_abandoned(models: Path) -> None:
    """Remove what additions that were killed left in models/."""
    for folder in models.glob(".tmp-*"):
        process = folder.name.rpartition("-")[2]
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """End a chat template that computes on and on, in the main thread."""

    def stop(*_: object) -> NoReturn:
        raise AddModelError(f"its trial conversations don't finish in {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _no_progress(phase: str, done: int, total: int) -> None:
    pass


def _say(event: str, **members: Any) -> None:
    print(json.dumps({"event": event, **members}, ensure_ascii=False), flush=True)


def _terminate(*_: object) -> NoReturn:
    """SIGTERM ends the addition as an exception does: nothing of it stays."""
    raise SystemExit(143)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.add_model", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--source", required=True, help="file, folder or installed package")
    parser.add_argument("--format", choices=FORMAT_CHOICES, default=DEFAULT_FORMAT)
    parser.add_argument("--calibration", type=Path, help="auto: JSONL rows to measure with")
    parser.add_argument("--budget", type=float, help="auto: bytes per parameter")
    parser.add_argument("--tolerance", type=float, default=DEFAULT_TOLERANCE, help="auto")
    parser.add_argument("--threads", type=int, default=1, help="auto: of the measuring")
    given = parser.parse_args(arguments)
    if given.format == "auto" and given.calibration is None:
        parser.error("--format auto needs --calibration")
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        format = given.format
        if format == "auto":
            settings = CalibrationSettings(threads=given.threads)
            format = AutoFormat(given.calibration, given.budget, given.tolerance, settings=settings)
        added = add_model(
            given.home,
            given.name,
            given.source,
            format,
            progress=lambda phase, done, total: _say(
                "progress", phase=phase, done=done, total=total
            ),
        )
    except (ValueError, OSError) as error:
        _say("error", message=str(error))
        return 1
    except Exception as error:
        traceback.print_exc()
        _say("error", message=f"unexpected {type(error).__name__}: {error}")
        return 1
    _say("added", manifest=added.manifest, **({"unchanged": True} if added.unchanged else {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
