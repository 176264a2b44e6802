"""The schedule: windows of local time in which training may proceed."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from api_schemas.base import Answer, Request, Timestamp
from api_schemas.pause import Pause

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)

MOST_WINDOWS = 20

Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", examples=["23:00"])]


def _week_order(days: list[Day]) -> list[Day]:
    if len(set(days)) != len(days):
        raise ValueError("a day occurs twice; name each one once")
    return sorted(days, key=DAYS.index)


class Window(Request):
    """A stretch of local time on the days on which it begins; past midnight if to < from."""

    model_config = ConfigDict(serialize_by_alias=True)

    days: Annotated[
        list[Day],
        Field(min_length=1, max_length=7, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_week_order),
    ]
    begin: Clock = Field(alias="from")
    end: Clock = Field(alias="to")

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.begin == self.end:
            raise ValueError("from and to are the same time; a window needs a length")
        return self


class NewSchedule(Request):
    """The windows that replace those before."""

    windows: Annotated[list[Window], Field(min_length=1, max_length=MOST_WINDOWS)] = Field(
        examples=[[{"days": ["sat", "sun"], "from": "22:30", "to": "07:00"}]]
    )


class NextOpening(Answer):
    """When training may proceed next by the schedule."""

    model_config = ConfigDict(serialize_by_alias=True)

    begins: Timestamp = Field(alias="from")
    ends: Timestamp = Field(alias="to")


class Schedule(Answer):
    """The windows, and what they say now. Windows that touch or overlap count as one."""

    windows: list[Window]
    in_force: bool = Field(description="Whether the windows decide when training proceeds.")
    zone: str = Field(
        description="The time zone of the device, in which the windows are meant.",
        examples=["Europe/Berlin"],
    )
    open: bool = Field(description="Whether a window is open now.")
    open_until: Timestamp | None = Field(description="Null: none is open, or one always is.")
    next: NextOpening | None = Field(description="Null: a window is open always.")
    pause: Pause
    changed_at: Timestamp | None = Field(description="Null: these are the windows of the start.")
