"""The rules of the night in words: why an adapter is due, or why it isn't."""

from datetime import UTC, datetime

from service.nights.moment import Moment
from service.nights.selection import DAY_MS, Facts, Standing


def why_due(standing: Standing) -> str:
    """Why it is this adapter's turn, or will be."""
    facts = standing.facts
    if facts.run is not None:
        asked = " and was asked for" if standing.rule == "asked-now" else ""
        return f"run {facts.run.id} is unfinished{asked}"
    if standing.rule == "waited-long":
        return (
            f"of its {examples(facts.new)} one has waited {_days(facts.night.wait_days)}, so "
            f"that it is due with fewer than {facts.night.min_new}"
        )
    return f"{examples(facts.new)} came, and {facts.night.min_new} make it due"


def when_due(facts: Facts, moment: Moment) -> str:
    """With how many new examples, or when, an adapter with too few becomes due."""
    enough = f"it is due with {facts.night.min_new}"
    if facts.new == 0:
        return f"{enough}, or once one has waited {_days(facts.night.wait_days)}"
    waiting = f"{examples(facts.new)} {'is' if facts.new == 1 else 'are'} waiting; {enough}"
    if facts.oldest_new is None:
        return waiting
    due_at = (facts.oldest_new + facts.night.wait_days * DAY_MS) / 1000
    return f"{waiting}, or from {moment.local(datetime.fromtimestamp(due_at, UTC))} on with fewer"


def no_window(moment: Moment) -> str:
    """That no window is open, and when one is."""
    return f"no window of the schedule is open; {moment.next_window()}"


def examples(count: int) -> str:
    """So many new training examples, in words."""
    return f"{count} new training example{'' if count == 1 else 's'}"


def _days(count: int) -> str:
    return "a day" if count == 1 else f"{count} days"
