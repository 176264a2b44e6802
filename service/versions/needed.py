"""Which versions an unfinished run has yet to do with: none of them may go."""

from dataclasses import dataclass
from typing import Any

from sqlmodel import Session

from service.home import Home
from service.runs.run_spec import SpecError, read_spec
from storage import runs


@dataclass(frozen=True)
class Needed:
    """The run, and the versions' folders relative to the home."""

    run_id: int
    compared_with: str | None
    begun_with: str | None

    @property
    def paths(self) -> frozenset[str]:
        """Both, where there are such."""
        return frozenset(one for one in (self.compared_with, self.begun_with) if one is not None)


def needed(home: Home, session: Session, adapter_id: int) -> Needed | None:
    """What the adapter's unfinished run needs; None without one that can go on."""
    run = runs.unfinished(session, adapter_id)
    if run is None:
        return None
    try:
        spec: dict[str, Any] = read_spec(home, run.id)
        start = spec.get("warm_start")
        return Needed(run.id, spec["active_version"], None if start is None else start["path"])
    except (SpecError, LookupError, TypeError):
        return None  # such a run can't go on anyway
