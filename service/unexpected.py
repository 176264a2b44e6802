"""Logging errors of our own without what they say, which may quote a person's text."""

import logging
import traceback


def log_unexpected(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log the error's kind and the lines it passed, but not its message."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s: unhandled %s\n%s", what, type(error).__qualname__, trace)
