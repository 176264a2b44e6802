"""The base models of a home, read from the manifests that `lorad model add` wrote."""

import logging
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api_schemas.models import BaseModelInfo
from service.door import strict_json

MANIFEST_NAME = "manifest.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_log = logging.getLogger("lorad.models")


class ModelError(Exception):
    """A model's folder is not usable; the message says what is wrong with it."""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


class _Weights(_File):
    bytes: int


class _Tokenizer(_File):
    sha256: str


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    num_hidden_layers: int = Field(gt=0)


class Manifest(BaseModel):
    """What the daemon reads of a model's manifest."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    manifest_version: Literal[1]
    name: str
    base_hash: str
    format: str
    formats: dict[str, Any] = Field(default_factory=dict)
    parameters: int = Field(gt=0)
    context_length: int = Field(gt=0)
    template_tokens: int = Field(ge=0)
    config: _Config
    weights: _Weights
    tokenizer: _Tokenizer

    def info(self) -> BaseModelInfo:
        """What apps and `lorad model list` are told; old manifests know of one format only."""
        return BaseModelInfo(
            name=self.name,
            base_hash=self.base_hash,
            format=self.format,
            formats=list(self.formats) or [self.format],
            bytes_per_parameter=round(self.weights.bytes / self.parameters, 3),
            parameters=self.parameters,
            context_length=self.context_length,
        )


class ModelFolder:
    """The ``models`` folder of a home. It is read anew each time: models come and go beside us."""

    def __init__(self, path: Path) -> None:
        """Look into this folder."""
        self._path = path

    def every(self) -> list[Manifest]:
        """All usable models, by name; the log names the others."""
        found = []
        for folder in sorted(self._path.iterdir()) if self._path.is_dir() else []:
            if not folder.name.startswith("."):
                try:
                    found.append(self.get(folder.name))
                except ModelError as error:
                    _log.warning("%s", error)
        return found

    def get(self, name: str) -> Manifest:
        """The model of that name.

        Raises:
            ModelError: there is none, or its folder is not usable.
        """
        folder = self._path / name
        if not _NAME.fullmatch(name) or not folder.is_dir():
            raise ModelError(
                f"no base model '{name}' is installed; install it with: lorad model add {name} "
                "FOLDER_FILE_OR_PACKAGE"
            )
        try:
            value = strict_json.loads((folder / MANIFEST_NAME).read_bytes())
            manifest = Manifest.model_validate(value)
            weights = (folder / manifest.weights.file).stat().st_size
            tokenizer = (folder / manifest.tokenizer.file).is_file()
        except (OSError, ValidationError, strict_json.JsonError) as error:
            raise ModelError(f"the base model '{name}' is not usable: {_reason(error)}") from None
        if manifest.name != name:
            raise ModelError(
                f"the base model '{name}' is not usable: its manifest says '{manifest.name}'"
            )
        if weights != manifest.weights.bytes:
            raise ModelError(
                f"the base model '{name}' is not usable: its weights have {weights} bytes, "
                f"its manifest says {manifest.weights.bytes}"
            )
        if not tokenizer:
            raise ModelError(f"the base model '{name}' is not usable: its tokenizer is missing")
        return manifest

    def tokenizer_path(self, manifest: Manifest) -> Path:
        """Where the model's tokenizer.json lies."""
        return self._path / manifest.name / manifest.tokenizer.file


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"its manifest's {'.'.join(map(str, first['loc']))}: {first['msg']}"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    return f"its manifest: {error}"
