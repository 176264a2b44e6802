"""What came out of one race: a ratio is of the same round, a loss is compared with ours.

Within a round both computed the same batch, one shortly after the other; reported is the median of
the rounds, those left out that only warm up.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from bench.peers_contestants import CONTESTANTS
from bench.peers_settings import Setting, padding_factor


@dataclass
class Record:
    """What one contestant did in one setting."""

    about: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    peak_mb: dict[str, float] = field(default_factory=dict)
    """VmHWM after the last step: `from_start` of the process, `training` since it was loaded."""


@dataclass(frozen=True)
class Race:
    """One setting and what its contestants did."""

    setting: Setting
    records: dict[str, Record]

    def seconds(self, name: str) -> float:
        """Median of a step's, those that warm up left out where there are others."""
        seconds = self.records[name].seconds
        return statistics.median(seconds[self.setting.warm_up :] or seconds)

    def ratio(self, name: str) -> float | None:
        """How many times as long as ours it takes; None if either was not measured."""
        ours = self.records.get(self.setting.ours)
        other = self.records.get(name)
        if ours is None or other is None:
            return None
        rounds = list(zip(other.seconds, ours.seconds, strict=False))[self.setting.warm_up :]
        return statistics.median(theirs / own for theirs, own in rounds) if rounds else None

    def loss_differences(self) -> dict[str, float]:
        """Largest difference from ours at any step, of all that computed the same."""
        ours = self.records[self.setting.ours].losses
        return {
            name: max(abs(a - b) for a, b in zip(record.losses, ours, strict=False))
            for name, record in self.records.items()
            if name != self.setting.ours and CONTESTANTS[name].same_weights
        }

    def training_shows(self) -> float | None:
        """By how much ours lost on the first batch when it came again; None if it never did.

        Curves of contestants that don't train at all would agree too.
        """
        losses, batches = self.records[self.setting.ours].losses, self.setting.batches
        again = [step for step in range(1, len(losses)) if batches[step] == batches[0]]
        return losses[0] - losses[again[0]] if again else None

    def summary(self) -> dict[str, Any]:
        """All of it in JSON."""
        setting = self.setting
        fell = self.training_shows()
        return {
            "layers": setting.layers,
            "steps": len(setting.batches),
            "warm_up_steps": setting.warm_up,
            "mean_tokens": round(statistics.mean(setting.tokens), 1),
            "padding_factor": round(padding_factor(setting.batches), 3),
            "ratios_to_ours": {
                name: round(found, 3)
                for name in self.records
                if name != setting.ours and (found := self.ratio(name)) is not None
            },
            "largest_loss_difference": {
                name: float(f"{value:.2e}") for name, value in self.loss_differences().items()
            },
            "loss_fell_by": None if fell is None else round(fell, 4),
            "contestants": {name: self._contestant(name) for name in self.records},
        }

    def _contestant(self, name: str) -> dict[str, Any]:
        record = self.records[name]
        return {
            "median_seconds": round(self.seconds(name), 4),
            "seconds": [round(value, 4) for value in record.seconds],
            "losses": [round(value, 6) for value in record.losses],
            "peak_mb": {since: round(value) for since, value in record.peak_mb.items()},
            **record.about,
        }
