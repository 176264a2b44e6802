"""What an exception of a run means: a full disk, a failure for good, or one to try again after."""

from __future__ import annotations

import errno

from npu.errors import NonFiniteInput
from npu.weight_layout import WeightFileError
from trainer.checkpoint import CheckpointMismatchError
from trainer.dataset import DatasetError
from trainer.plan import BudgetError
from trainer.publishing import UnchangedError
from trainer.run import RunError
from trainer.spec import SpecError
from trainer.tokens import TokenizerError

_FINAL = (
    BudgetError,
    RunError,
    UnchangedError,
    SpecError,
    CheckpointMismatchError,
    DatasetError,
    TokenizerError,
    WeightFileError,
    FloatingPointError,
    NonFiniteInput,
)
_NO_ROOM = {errno.ENOSPC: "no space is left on it", errno.EDQUOT: "the quota is used up"}


def worth_another_try(error: Exception) -> bool:
    """Whether the same run may end otherwise next time: true of whatever nobody expected."""
    return not isinstance(error, _FINAL)


def full_disk(error: Exception) -> str | None:
    """The reason to stop where a disk has no room for a checkpoint or a version, else None.

    It is no failure: everything goes on as it was once there is room.
    """
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:
            return f"the disk is full: {_NO_ROOM[cause.errno]}"
    return None
