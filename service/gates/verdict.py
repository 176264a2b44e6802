"""What a gate says."""

from dataclasses import dataclass

from api_schemas.gates import GATES, GateName

__all__ = ["GATES", "GateName", "GateVerdict"]


@dataclass(frozen=True)
class Unknown:
    """What isn't known, and why: no reading, or one that can't be relied on."""

    subject: str
    why: str


@dataclass(frozen=True)
class GateVerdict:
    """One gate at one moment, with everything that decided it."""

    name: GateName
    open: bool
    reading: float | bool | None
    limit: float | bool | None
    unit: str | None
    age_seconds: float | None
    reason: str
    """A sentence: expected, found, and what opens it."""
    overridable: bool
    """Closed, but ``train:override`` may pass it: known, and not beyond a hard limit."""
    unknown: Unknown | None = None
    """Closed because there is no reading that can be relied on."""
