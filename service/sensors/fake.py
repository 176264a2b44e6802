"""Sensors of which a file says what they read: for machines without a battery, and for tests."""

import json
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.home import Home
from service.sensors import room
from service.sensors.quantity import LEVEL, TEMPERATURE
from service.sensors.readings import Battery, Reading, Readings

_MOST_BYTES = 64 * 1024
_BEING_WRITTEN_SECONDS = 0.05

SensorName = Literal[
    "plugged", "full", "level", "battery_temperature", "skin_temperature", "storage", "memory"
]


class FakeReadings(BaseModel):
    """The file: a plugged, charged and cool device, but for what it says otherwise."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    plugged: bool = True
    full: bool = False
    level: float = 100.0
    battery_temperature: float = 25.0
    skin_temperature: float | None = None  # None: no such sensor
    storage_bytes: int | None = Field(default=None, ge=0, lt=2**63)  # None: what there is
    memory_bytes: int | None = Field(default=None, ge=0, lt=2**63)
    silent: list[SensorName] = []


class FakeSensors:
    """Reads the file at every look, so that whoever writes it drives the daemon."""

    def __init__(self, home: Home, clock: Callable[[], float]) -> None:
        """Bind to the ``sensors.json`` of a home, which need not be there."""
        self._home = home
        self._path = home.path / "sensors.json"
        self._clock = clock

    def read(self) -> Readings:
        """What the file says now; if it can't be read as one, that nothing is known."""
        try:
            said = self._said()
        except ValueError:
            time.sleep(_BEING_WRITTEN_SECONDS)
            try:
                said = self._said()
            except ValueError as error:
                return self._nothing(str(error))
        return self._readings(said)

    def _said(self) -> FakeReadings:
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES)
            return FakeReadings.model_validate(json.loads(data))
        except FileNotFoundError:
            return FakeReadings()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "it"
            raise ValueError(f"{self._path}: {place}: {first['msg']}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{self._path} is no JSON that can be read: {error}") from None

    def _readings(self, said: FakeReadings) -> Readings:
        at, source = self._clock(), self._path.name
        skin: Reading[float] = Reading(None, source, at, f"{source} names none", absent=True)
        if said.skin_temperature is not None:
            skin = TEMPERATURE.reading(said.skin_temperature, source, at)
        readings: dict[str, Reading[Any]] = {
            "plugged": Reading(said.plugged, source, at),
            "full": Reading(said.full, source, at),
            "level": LEVEL.reading(said.level, source, at),
            "battery_temperature": TEMPERATURE.reading(said.battery_temperature, source, at),
            "skin_temperature": skin,
            "storage": room.storage(self._home.path, at)
            if said.storage_bytes is None
            else Reading(said.storage_bytes, source, at),
            "memory": room.memory(at)
            if said.memory_bytes is None
            else Reading(said.memory_bytes, source, at),
        }
        for name in said.silent:
            readings[name] = Reading(None, source, at, f"{source} says that it is silent")
        return Readings(**readings)

    def _nothing(self, why: str) -> Readings:
        at, source = self._clock(), self._path.name
        silent: Reading[Any] = Reading(None, source, at, why)
        battery = Battery.unknown(source, at, why)
        return Readings(**vars(battery), skin_temperature=silent, storage=silent, memory=silent)
