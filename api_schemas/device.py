"""The device: what there is room for, and what trains on it."""

from typing import Literal

from pydantic import Field

from api_schemas.base import Answer
from api_schemas.engine import Engine
from api_schemas.gates import Gate


class Room(Answer):
    """Bytes free and in all; null where the system doesn't say."""

    free_bytes: int | None
    total_bytes: int | None


class Reading(Answer):
    """A sensor's last word: its value, or why there is none."""

    value: bool | float | None
    unit: Literal["%", "°C"] | None
    source: str | None = Field(description="What was asked.")
    age_seconds: float | None = Field(description="Since it was asked; null if it never was.")
    why: str | None = Field(description="Why there is no value.")


class Battery(Answer):
    """What is known of the battery."""

    level: Reading = Field(description="Charge in percent.")
    plugged: Reading = Field(description="Whether a charger is connected.")
    full: Reading = Field(
        description="Whether it takes no more: full, or held at the charge limit its user set."
    )
    temperature: Reading = Field(description="In °C.")


class Worker(Answer):
    """The one process that trains."""

    state: Literal["idle", "training", "waiting"]
    run: int | None = Field(description="What it trains, if that is the client's own.")
    because: str | None = Field(description="Why no queued run is started.")


class WakeLock(Answer):
    """What keeps the phone awake while a worker trains."""

    state: Literal["held", "not-held", "unavailable", "none"] = Field(
        description="unavailable: it was wanted and not had, or not given back. none: this device "
        "takes none."
    )
    why: str = Field(description="That in words, for a person.")


class Device(Answer):
    """The device as the daemon sees it."""

    storage: Room = Field(description="Of the file system of lorad's home folder.")
    memory: Room = Field(description="Free: what can be had without swapping.")
    training_memory_bytes: int = Field(
        description="What the training of a new run takes at its most: the daemon's setting."
    )
    database_bytes: int | None = Field(description="Told only to a token with the scope admin.")
    worker: Worker
    wake_lock: WakeLock
    engine: Engine
    battery: Battery
    skin_temperature: Reading = Field(
        description="Of the case, in °C; many devices let nobody read it."
    )
    gates: list[Gate] = Field(description="Conditions for training with their verdicts.")
