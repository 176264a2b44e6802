"""A question that isn't answered, and why."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - the question's fault or the moment's, none of the process's
    """Says with a status of HTTP, in one sentence without any text of the question, why."""

    def __init__(self, status: int, error: str, field: str | None = None) -> None:
        """Name the field of the question that is at fault, if one is, as `inputs.3`."""
        super().__init__(error)
        self.status, self.error, self.field = status, error, field


class Cancelled(Exception):  # noqa: N818 - nobody waits for the answer any more
    """The question was taken back."""
