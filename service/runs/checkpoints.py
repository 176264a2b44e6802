"""A run's checkpoints as they lie in the home. A folder named ``step-N`` is a complete one."""

import shutil
from pathlib import Path

from service.home import Home


def newest_checkpoint(home: Home, run_id: int) -> int | None:
    """The step of the newest checkpoint of the run."""
    names = [
        path.name.removeprefix("step-").partition(".")[0]
        for path in _folder(home, run_id).glob("step-*")
    ]
    return max((int(name) for name in names if name.isdigit()), default=None)


def remove_checkpoints(home: Home, run_id: int) -> None:
    """Remove the checkpoints of a run that can't go on. What resists, the next start removes."""
    shutil.rmtree(_folder(home, run_id), ignore_errors=True)


def _folder(home: Home, run_id: int) -> Path:
    return home.run(run_id) / "checkpoints"
