"""Deletions: what went, who had seen it, and whether every trace of it has gone."""

from typing import Literal

from pydantic import Field

from api_schemas.base import Answer, Timestamp

Erased = Literal["pending", "done"]


class Deleted(Answer):
    """Something is deleted: no request finds it any more."""

    deleted: int = Field(description="How many examples went.")
    erased: Erased = Field(
        description="done: no byte of it is left in the home folder. pending: somebody is still "
        "reading; it is tried every second, and GET /v1/erasures/{erasure} tells when it is done."
    )
    erasure: int = Field(description="The id of the erasure.")


class ExamplesDeleted(Deleted):
    """Examples are deleted. What was trained on them still is, until it is trained anew."""

    versions: list[int] = Field(
        description="The versions that were trained or measured on any of them."
    )
    run: int | None = Field(
        description="The unfinished run that may have them: it goes on without them from its next "
        "step on."
    )
    retrain: str = Field(description="The request that trains a version without them.")
    restart: str | None = Field(
        description="The request that starts the unfinished run again, as if it had never had them."
    )


class Erasure(Answer):
    """A deletion, and whether every trace of it has gone from the home folder.

    Beyond reach are copies that flash memory keeps, snapshots and backups, blocks of the file
    system that files gave back, adapters that were downloaded, what a version's weights have
    learned, and the memory of a training until its next step.
    """

    id: int
    what: Literal["examples", "adapter", "client", "version", "retention", "correction"] = Field(
        description="retention: examples that expired; correction: texts that were replaced."
    )
    examples: int
    erased: Erased
    requested_at: Timestamp
    erased_at: Timestamp | None
