"""What the races say together: the ratios of the goals, memory, efficiency, and which were met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bench.peers_race import LOSS_TOLERANCE, Record, loss_differences, ratio

Records = Mapping[str, Record]
Races = Mapping[str, Records]
"""Of each setting, what each contestant did."""

RATIOS: Mapping[str, tuple[str, str]] = {
    "realistic_vs_peft_as_used": ("realistic", "peft_as_used"),
    "realistic_vs_peft_best": ("realistic_sorted", "peft_best"),
    "short_4x64": ("short_4x64", "peft"),
    "short_4x64_vs_peft_best": ("short_4x64", "peft_best"),
    "full_4x256": ("full_4x256", "peft"),
}
"""Ratio by name: its setting, and whose seconds are divided by ours."""

PEAKS: Mapping[str, tuple[str, str]] = {
    "ours_4x256": ("full_4x256", "ours"),
    "ours_saving_all_4x256": ("full_4x256", "ours_saving_all"),
    "peft_4x256": ("full_4x256", "peft"),
    "peft_best_4x256": ("full_4x256", "peft_best"),
    "peft_checkpointing_4x256": ("full_4x256", "peft_checkpointing"),
    "litgpt_4x256": ("full_4x256", "litgpt"),
    "torchtune_4x256": ("full_4x256", "torchtune"),
    "ours_realistic": ("realistic", "ours"),
    "peft_as_used_realistic": ("realistic", "peft_as_used"),
}
"""Peak by name: its setting and contestant."""

LEAST_FALL = 0.01
"""By how much a batch's loss falls at least until it comes again, natural log."""

COUNTED = (
    "VmHWM, MB of 10**6 bytes: every resident page, also of mapped files (weights, libraries); "
    "peak_mb from the start of the process, peak_mb_training from when all was loaded"
)
EFFICIENCY = (
    "seconds that the step's unavoidable operations (bench.peers_flop) would take at the best rate "
    "of any frozen shape (bench.peers_gemm), over our median seconds; computing anything again is "
    "no such operation"
)


@dataclass(frozen=True)
class Goal:
    """A figure and what it should be."""

    figure: str
    sense: Literal[">=", "<="]
    value: float

    def met(self, found: float) -> bool:
        return found >= self.value if self.sense == ">=" else found <= self.value


GOALS: Mapping[str, Goal] = {
    "realistic_vs_peft_as_used": Goal("ratios.realistic_vs_peft_as_used", ">=", 4.0),
    "realistic_vs_peft_best": Goal("ratios.realistic_vs_peft_best", ">=", 2.0),
    "short_4x64": Goal("ratios.short_4x64", ">=", 1.4),
    "full_4x256": Goal("ratios.full_4x256", ">=", 1.3),
    "top8_cached": Goal("ratios.top8_cached", ">=", 3.0),
    "peak_mb_ours_4x256": Goal("peak_mb.ours_4x256", "<=", 700.0),
    "speed_at_that_peak": Goal("ratios.full_4x256", ">=", 1.0),
    "gemm_efficiency_short_4x64": Goal("gemm_efficiency.short_4x64", ">=", 0.75),
    "gemm_efficiency_full_4x256": Goal("gemm_efficiency.full_4x256", ">=", 0.75),
}


def ratios(races: Races) -> dict[str, float | None]:
    """How many times as long as ours each takes; None: not measured in this run."""
    return {
        name: _rounded(ratio(races.get(setting, {}), peer, "ours"), 3)
        for name, (setting, peer) in RATIOS.items()
    }


def peaks(races: Races, since: Literal["from_start", "training"]) -> dict[str, float]:
    """Peak memory in MB of whatever was measured."""
    return {
        name: round(races[setting][who].peak_mb[since])
        for name, (setting, who) in PEAKS.items()
        if who in races.get(setting, {})
    }


def disagreements(races: Races) -> list[str]:
    """Whose losses differ from ours though the computation is the same, in words."""
    return [
        f"{setting}: {name} differs from ours by {difference:.2e} (at most {LOSS_TOLERANCE:g})"
        for setting, records in races.items()
        for name, difference in loss_differences(records).items()
        if not difference <= LOSS_TOLERANCE
    ]


def standstills(fallen: Mapping[str, float | None]) -> list[str]:
    """Settings in which ours doesn't learn, in words: there curves agree that prove nothing."""
    return [
        f"{setting}: ours doesn't learn: a batch's loss fell by {fall:.2e} until it came again"
        for setting, fall in fallen.items()
        if fall is not None and not fall > LEAST_FALL
    ]


def goals(figures: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, Any]]:
    """Each goal with what was found; `met` is None where nothing was measured."""
    found = {}
    for name, goal in GOALS.items():
        group, _, figure = goal.figure.partition(".")
        value = figures.get(group, {}).get(figure)
        found[name] = {
            "goal": f"{goal.sense} {goal.value:g}",
            "found": value,
            "met": None if value is None else goal.met(value),
        }
    return found


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
