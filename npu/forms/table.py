"""Form `table`: the weights lie in static tables inside the compiled graphs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

from npu.engine_options import FormName
from npu.errors import EngineError, ProductError
from npu.forms.form import Cut, Form, Half, Piece, run_session
from npu.forms.tables import Table, Tables, cut
from npu.frozen_matrix import FrozenMatrix
from npu.graphs import OPERAND
from npu.graphs_table import INDEX, TableGraph, build_table_graph
from npu.kept_context import open_shared_context
from npu.ledger import Direction
from npu.sessions import FileOpener, HtpSessions, Session


class TableForm(Form):
    """One graph serves all weights of a table; an index says which."""

    name: ClassVar[FormName] = "table"

    def __init__(
        self,
        tables: Tables,
        session: Callable[[TableGraph], Session],
        *,
        context: Mapping[str, Any] | None = None,
        close: Callable[[], None],
    ) -> None:
        """Products of what lies in `tables`, by the graphs that `session` returns.

        `session` may raise EngineError; `context` is for the report.
        """
        self._tables = tables
        self._session = session
        self._context = context
        self._close = close

    def cut(self, matrix: FrozenMatrix) -> Cut:
        """The pieces of `matrix` that lie in tables."""
        return cut(matrix)

    def run(self, piece: Piece, direction: Direction, operand: Half) -> Half:
        """The product with the entry of `piece`; ProductError if it lies in no table."""
        try:
            table, index = self._tables.place(piece)
            session = self._session(TableGraph(table, direction, operand.shape[0]))
        except KeyError:
            raise ProductError(
                f"expected a matrix that the engine was opened with, found another, "
                f"'{piece.matrix.name}': it lies in no table"
            ) from None
        except EngineError as error:
            raise ProductError(str(error)) from error
        return run_session(session, {OPERAND: operand, INDEX: index})

    def samples(self) -> list[Piece]:
        """The first and the last entry of each table."""
        return [
            piece
            for table in self._tables.tables
            for piece in (table.pieces[0], *table.pieces[1:][-1:])
        ]

    def report(self) -> dict[str, Any]:
        """The context that the graphs share, where they do."""
        return {} if self._context is None else {"context": dict(self._context)}

    def close(self) -> None:
        """Let go of the sessions and the tables' file."""
        self._close()
        self._tables = Tables.of([])


def table_in_one_context(
    matrices: Iterable[FrozenMatrix], buckets: Sequence[int], sessions: HtpSessions
) -> TableForm:
    """All tables, both directions and every one of `buckets` in one context of the HTP.

    Raises EngineError with the reason if it can't be made.
    """
    tables = Tables.of(matrices)
    models = {
        graph.name: model for table in tables.tables for graph, model in _graphs(table, buckets)
    }

    def write(folder: Path) -> None:
        for table in tables.tables:
            table.write(folder)

    def hashes() -> dict[str, str]:
        return {table.file: table.sha256() for table in tables.tables}

    context = open_shared_context(models, hashes, write, sessions)
    opened = dict(context.sessions)

    def close() -> None:
        while opened:  # in reverse order: the first session holds what the others use
            opened.popitem()

    return TableForm(
        tables, lambda graph: opened[graph.name], context=context.report(), close=close
    )


def _graphs(table: Table, buckets: Sequence[int]) -> Iterable[tuple[TableGraph, bytes]]:
    """The graphs of `table`, which refer to its file."""
    layout = table.layout()
    for M in buckets:
        for direction in get_args(Direction):
            graph = TableGraph(table.spec, direction, M)
            yield graph, build_table_graph(graph, layout)


def table_in_separate_graphs(
    matrices: Iterable[FrozenMatrix], open_session: FileOpener
) -> TableForm:
    """The same graphs where there is no context to share: each is opened when it is first used."""
    tables = Tables.of(matrices)
    folder = tempfile.TemporaryDirectory(prefix="lorad-tables-")
    layouts = {table.spec: table.write(Path(folder.name)) for table in tables.tables}
    opened: dict[TableGraph, Session] = {}

    def session(graph: TableGraph) -> Session:
        if graph not in opened:
            path = Path(folder.name) / f"{graph.name}.onnx"
            path.write_bytes(build_table_graph(graph, layouts[graph.table]))
            opened[graph] = open_session(path)
        return opened[graph]

    def close() -> None:
        opened.clear()
        folder.cleanup()

    return TableForm(tables, session, close=close)
