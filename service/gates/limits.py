"""The limits of the gates: environment variables LORAD_GATE_…, one table of all."""

from collections.abc import Iterator
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "LORAD_GATE_"

_MIB = 1024 * 1024
_COLDEST, _HOTTEST_BATTERY, _HOTTEST_SKIN = 10.0, 45.0, 48.0


def _percent(default: float, description: str, least: float = 0.0) -> Any:
    return Field(
        default=default,
        ge=least,
        le=100,
        description=description,
        json_schema_extra={"unit": "%"},
    )


def _celsius(default: float, hottest: float, description: str) -> Any:
    return Field(
        default=default,
        ge=_COLDEST,
        le=hottest,
        description=description,
        json_schema_extra={"unit": "°C"},
    )


def _bytes(default: int, description: str) -> Any:
    return Field(
        default=default, ge=0, description=description, json_schema_extra={"unit": "bytes"}
    )


def _seconds(default: float, least: float, most: float, description: str) -> Any:
    return Field(
        default=default,
        ge=least,
        le=most,
        description=description,
        json_schema_extra={"unit": "s"},
    )


class Limits(BaseSettings):
    """What each gate measures its reading by; README.md of this folder argues the numbers.

    ``start`` lets training begin, from ``soft`` on it takes less of the time, ``pause`` or
    ``floor`` stops it, ``resume`` lets it go on after it was stopped, and ``hard`` is what no
    ``train:override`` passes.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", allow_inf_nan=False
    )

    level_start: float = _percent(80.0, "Charge from which training starts; a full battery does.")
    level_floor: float = _percent(30.0, "Charge below which nothing trains.", least=5.0)
    battery_temperature_start: float = _celsius(
        35.0, _HOTTEST_BATTERY, "Warmest battery with which training starts."
    )
    battery_temperature_resume: float = _celsius(
        37.0, _HOTTEST_BATTERY, "Warmest battery with which training that warmed it goes on."
    )
    battery_temperature_soft: float = _celsius(
        38.5, _HOTTEST_BATTERY, "Battery from which on training takes less than all of the time."
    )
    battery_temperature_pause: float = _celsius(
        42.0, _HOTTEST_BATTERY, "Battery that pauses training."
    )
    battery_temperature_hard: float = _celsius(
        43.0, _HOTTEST_BATTERY, "Battery at which nothing trains, whoever asks."
    )
    skin_temperature_start: float = _celsius(
        40.0, _HOTTEST_SKIN, "Warmest case with which training starts."
    )
    skin_temperature_resume: float = _celsius(
        40.0, _HOTTEST_SKIN, "Warmest case with which training that warmed it goes on."
    )
    skin_temperature_soft: float = _celsius(
        40.0, _HOTTEST_SKIN, "Case from which on training takes less than all of the time."
    )
    skin_temperature_pause: float = _celsius(43.0, _HOTTEST_SKIN, "Case that pauses training.")
    skin_temperature_hard: float = _celsius(
        46.0, _HOTTEST_SKIN, "Case at which nothing trains, whoever asks."
    )
    duty_least: float = Field(
        default=0.05,
        ge=0.01,
        le=1,
        description="Share of the time that is worked just before a temperature pauses training.",
        json_schema_extra={"unit": "of the time"},
    )
    storage_start_bytes: int = _bytes(1024 * _MIB, "Free for the home before training starts.")
    storage_floor_bytes: int = _bytes(512 * _MIB, "Free for the home; with less training pauses.")
    memory_start_bytes: int = _bytes(1536 * _MIB, "Memory to be had before training starts.")
    memory_floor_bytes: int = _bytes(512 * _MIB, "Memory to be had; with less training pauses.")
    cool_down_seconds: float = _seconds(
        300.0, 0, 86_400, "For how long a gate that closed stays closed at least."
    )
    most_age_seconds: float = _seconds(
        180.0, 1, 3600, "For how long a reading counts; an older one is none."
    )

    def with_memory(self, budget: int) -> Self:
        """The same, but at least ``budget`` bytes of memory must be had before training starts."""
        return self.model_copy(update={"memory_start_bytes": max(self.memory_start_bytes, budget)})

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high, equal_too, why in _ORDER:
            below, above = getattr(self, low), getattr(self, high)
            if below > above or (below == above and not equal_too):
                raise ValueError(
                    f"{PREFIX}{low.upper()} ({below:.15g}) must be "
                    f"{'at most' if equal_too else 'below'} {PREFIX}{high.upper()} ({above:.15g}): "
                    f"{why}"
                )
        return self


def _temperature_order(gate: str) -> Iterator[tuple[str, str, bool, str]]:
    yield f"{gate}_start", f"{gate}_resume", True, "what may start must be able to go on"
    yield f"{gate}_resume", f"{gate}_pause", False, "else every pause would end at once"
    yield f"{gate}_soft", f"{gate}_pause", False, "training slows down before it pauses"
    yield f"{gate}_pause", f"{gate}_hard", True, "training pauses before it is stopped for good"


_ORDER: tuple[tuple[str, str, bool, str], ...] = (
    ("level_floor", "level_start", True, "what starts must not be stopped at once"),
    *_temperature_order("battery_temperature"),
    *_temperature_order("skin_temperature"),
    ("storage_floor_bytes", "storage_start_bytes", True, "what starts must not be stopped at once"),
    ("memory_floor_bytes", "memory_start_bytes", True, "what starts must not be stopped at once"),
)
"""Which limit lies below which, whether they may be equal, and why."""
