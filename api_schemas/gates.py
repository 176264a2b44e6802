"""Gates: the conditions for training, as they stand."""

from typing import Literal, get_args

from pydantic import Field

from api_schemas.base import Answer

GateName = Literal[
    "charging", "level", "battery_temperature", "skin_temperature", "storage", "memory"
]
GATES: tuple[GateName, ...] = get_args(GateName)


class Gate(Answer):
    """One gate's verdict, with everything that decided it."""

    name: GateName
    open: bool
    reading: bool | int | float | None = Field(description="Null where none can be relied on.")
    limit: bool | int | float | None = Field(description="The one that applies at this moment.")
    unit: str | None = Field(description="Of reading and limit: %, °C or bytes.")
    age_seconds: float | None = Field(description="Of the reading, when the verdict was given.")
    reason: str = Field(description="What was found, what is expected, and what opens the gate.")
    overridable: bool = Field(
        description="Closed, but a token with the scope train:override may pass it."
    )
