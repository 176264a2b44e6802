"""Sets of ids as ranges ``[first, last]``: what a version has seen, small however many it was."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence


def ranges(ids: Iterable[int]) -> list[list[int]]:
    """The fewest ranges that hold exactly these ids, ascending; both ends belong to a range."""
    found: list[list[int]] = []
    for one in sorted(set(ids)):
        if found and found[-1][1] == one - 1:
            found[-1][1] = one
        else:
            found.append([one, one])
    return found


def count_in(ranges: Sequence[Sequence[int]], ids: Iterable[int]) -> int:
    """How many of the distinct ``ids`` lie in ``ranges``, which `ranges` made."""
    firsts = [first for first, _ in ranges]
    return sum(_holds(ranges, bisect_right(firsts, one) - 1, one) for one in set(ids))


def _holds(ranges: Sequence[Sequence[int]], position: int, one: int) -> bool:
    return position >= 0 and one <= ranges[position][1]
