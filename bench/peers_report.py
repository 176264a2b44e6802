"""What the races say together: the ratios of the goals, memory, efficiency, and which were met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bench.peers_result import Race

Races = Mapping[str, Race]
"""By the name of the setting."""

LOSS_TOLERANCE = 1e-3
"""How far apart the losses of the same computation may be, natural log, at any step."""

RATIOS: Mapping[str, tuple[str, str]] = {
    "realistic_vs_peft_as_used": ("realistic", "peft_as_used"),
    "realistic_vs_peft_best": ("realistic_sorted", "peft_best"),
    "short_4x64": ("short_4x64", "peft"),
    "short_4x64_vs_peft_best": ("short_4x64", "peft_best"),
    "full_4x256": ("full_4x256", "peft"),
    "full_4x256_in_700_mb": ("full_4x256_700_mb", "peft"),
    "top8_cached_realistic": ("realistic_top", "peft_as_used"),
    "top8_cached_realistic_vs_peft_best": ("realistic_sorted_top", "peft_best"),
    "top8_cached_short_4x64": ("short_4x64_top", "peft"),
    "top8_cached_short_4x64_vs_peft_best": ("short_4x64_top", "peft_best"),
    "qwen_1x256": ("qwen_1x256", "peft"),
    "full_4x256_vs_peft_checkpointing": ("full_4x256", "peft_checkpointing"),
    "full_4x256_vs_peft_best": ("full_4x256_peft_best", "peft_best"),
    "realistic_vs_litgpt": ("realistic_others", "litgpt"),
    "realistic_vs_torchtune": ("realistic_others", "torchtune"),
    "short_4x64_vs_litgpt": ("short_4x64_others", "litgpt"),
    "short_4x64_vs_torchtune": ("short_4x64_others", "torchtune"),
    "full_4x256_vs_litgpt": ("full_4x256_litgpt", "litgpt"),
    "full_4x256_vs_torchtune": ("full_4x256_torchtune", "torchtune"),
}
"""Ratio by name: its setting, and whose seconds are divided by ours."""

TOP8 = ("top8_cached_realistic", "top8_cached_short_4x64")
"""`top8_cached` is the smaller of these."""

PEAKS: Mapping[str, tuple[str, str]] = {
    "ours_4x256": ("full_4x256", "ours"),
    "ours_700_mb_4x256": ("full_4x256_700_mb", "ours_700_mb"),
    "ours_saving_all_4x256": ("full_4x256_formats", "ours_saving_all"),
    "peft_4x256": ("full_4x256", "peft"),
    "peft_best_4x256": ("full_4x256_peft_best", "peft_best"),
    "peft_checkpointing_4x256": ("full_4x256", "peft_checkpointing"),
    "litgpt_4x256": ("full_4x256_litgpt", "litgpt"),
    "torchtune_4x256": ("full_4x256_torchtune", "torchtune"),
    "ours_realistic": ("realistic", "ours"),
    "peft_as_used_realistic": ("realistic", "peft_as_used"),
    "ours_qwen_1x256": ("qwen_1x256", "ours"),
    "peft_qwen_1x256": ("qwen_1x256", "peft"),
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
    "peak_mb_ours_4x256": Goal("peak_mb.ours_700_mb_4x256", "<=", 700.0),
    "speed_at_that_peak": Goal("ratios.full_4x256_in_700_mb", ">=", 1.0),
    "gemm_efficiency_short_4x64": Goal("gemm_efficiency.short_4x64", ">=", 0.75),
    "gemm_efficiency_full_4x256": Goal("gemm_efficiency.full_4x256", ">=", 0.75),
}


def ratios(races: Races) -> dict[str, float | None]:
    """How many times as long as ours each takes; None: not measured in this run."""
    found: dict[str, float | None] = {}
    for name, (setting, peer) in RATIOS.items():
        ratio = races[setting].ratio(peer) if setting in races else None
        found[name] = None if ratio is None else round(ratio, 3)
    top = [found[name] for name in TOP8]
    measured = [ratio for ratio in top if ratio is not None]
    found["top8_cached"] = min(measured) if len(measured) == len(top) else None
    return found


def peaks(races: Races, since: Literal["from_start", "training"]) -> dict[str, float]:
    """Peak memory in MB of whatever was measured."""
    return {
        name: round(races[setting].records[who].peak_mb[since])
        for name, (setting, who) in PEAKS.items()
        if setting in races and who in races[setting].records
    }


def broken(races: Races) -> list[str]:
    """In words: whose losses differ from ours though the computation is the same, and where ours
    doesn't learn, since there all curves agree and prove nothing.
    """
    found = []
    for name, race in races.items():
        for who, difference in race.loss_differences().items():
            if not difference <= LOSS_TOLERANCE:
                found.append(
                    f"{name}: {who} differs from ours by {difference:.2e}"
                    f" (at most {LOSS_TOLERANCE:g})"
                )
        fell = race.training_shows()
        if fell is not None and not fell > LEAST_FALL:
            found.append(
                f"{name}: ours doesn't learn: a batch's loss fell by {fell:.2e} until it came again"
            )
    return found


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
