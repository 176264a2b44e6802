"""What is printed for people: as wide as the terminal, in colour where that is wanted.

rich honours NO_COLOR, TERM=dumb and COLUMNS, and writes no colour into a file or a pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 400
"""Whatever reads a pipe has no edge at which a line would have to break."""

_NARROW = 70
"""Below this, as on a phone held upright, a table that doesn't fit is told line by line."""


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """The console of a command's output, or of its progress (``stderr``)."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    return Console(stderr=stderr, quiet=quiet, width=wide, highlight=False, markup=False)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their titles; on a narrow terminal one below the other where need be."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(*titles)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    natural = Measurement.get(out, out.options.update(max_width=_PIPE_COLUMNS), table).maximum
    if out.width >= _NARROW or natural <= out.width:
        out.print(table)
        return
    for row in rows:
        out.print(Text(f"{titles[0]} {row[0]}", style="bold"))
        for title, cell in zip(titles[1:], row[1:], strict=True):
            out.print(Text(f"  {title}: {cell}" if title else f"  {cell}"))
