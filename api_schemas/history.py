"""History: what happened to a client's adapters and runs."""

from pydantic import Field

from api_schemas.base import Answer, Timestamp


class HistoryEntry(Answer):
    """Something that happened."""

    id: int
    at: Timestamp
    kind: str = Field(description="Noun and verb, as `run-paused`.")
    message: str = Field(description="In words, without any example's text.")
    client: str | None = Field(description="Whose it is; null: it concerns the whole daemon.")
    adapter: str | None = Field(description="The name of the adapter it is about.")
    run: int | None = Field(description="The run it is about.")


class HistoryPage(Answer):
    """A page of history, newest first."""

    entries: list[HistoryEntry]
    next: str | None = Field(description="The cursor of the next page; null: this is the last.")
