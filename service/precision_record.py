"""`precision.json` of a base model, as `trainer/calibration/record.py` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.door import strict_json

RECORD_NAME = "precision.json"


class RecordError(Exception):
    """The record can't be used; the message says what is wrong with it."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class Change(_Part):
    """How far the adapter's gradients moved: ||g' - g|| / ||g||, and the angle's cosine."""

    change: float
    cosine: float
    worst_tensor: str
    worst_change: float


class Candidate(_Part):
    """A format that a matrix could have; ``change`` estimates both directions together."""

    format: str
    bytes: int
    change: float
    forward: Change
    input_gradient: Change | None


class Matrix(_Part):
    """A matrix, its format and why, and what every candidate changes."""

    name: str
    shape: tuple[int, int]
    native: str | None
    format: str
    reason: Literal["exact", "tolerance", "budget"]
    bytes: int
    measured: Change
    candidates: list[Candidate]
    refused: dict[str, str]


class Mix(_Part):
    """All matrices in their formats."""

    parameters: int = Field(gt=0)
    bytes: int
    bytes_per_parameter: float
    estimate: float
    excess: float
    measured: Change


class PrecisionRecord(_Part):
    """What was measured and chosen when the model was added."""

    precision_version: Literal[1]
    base_hash: str
    source: dict[str, str]
    created_at: str
    calibration: dict[str, Any]
    tolerance: float
    budget: int | None
    mix: Mix
    matrices: list[Matrix] = Field(min_length=1)


def read_record(folder: Path, base_hash: str) -> PrecisionRecord | None:
    """The record in a model's folder; None if nothing was measured.

    Raises:
        RecordError: it can't be read, or belongs to other weights.
    """
    try:
        record = PrecisionRecord.model_validate(
            strict_json.loads((folder / RECORD_NAME).read_bytes())
        )
    except FileNotFoundError:
        return None
    except (OSError, strict_json.JsonError) as error:
        raise RecordError(f"{RECORD_NAME} can't be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordError(f"{RECORD_NAME}, {where}: {first['msg']}") from None
    if record.base_hash != base_hash:
        raise RecordError(
            f"{RECORD_NAME} belongs to the weights {record.base_hash}, but the model's are "
            f"{base_hash}; add the model again"
        )
    return record
