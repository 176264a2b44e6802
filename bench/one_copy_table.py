"""Form `table` as `npu` makes it, for `bench.one_copy`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from npu.forms.table import TableForm, table_in_one_context
from npu.forms.tables import Tables
from npu.frozen_matrix import FrozenMatrix
from npu.graphs_table import TableGraph, build_table_graph
from npu.sessions import HtpSessions
from npu.shared_context import build_shared_context


def build(
    matrices: Sequence[FrozenMatrix],
    buckets: Sequence[int],
    sessions: HtpSessions,
    *,
    forward_only: bool,
) -> TableForm:
    """All tables in one context, as training has it; with `forward_only` half of the graphs.

    Raises EngineError if the context can't be made.
    """
    if not forward_only:
        return table_in_one_context(matrices, buckets, sessions)
    tables = Tables.of(matrices)
    with tempfile.TemporaryDirectory(prefix="lorad-context-") as name:
        models = {}
        for table in tables.tables:
            layout = table.layout()
            table.write(Path(name))
            for rows in buckets:
                graph = TableGraph(table.spec, "forward", rows)
                models[graph.name] = build_table_graph(graph, layout)
        context = build_shared_context(models, Path(name), sessions)
    opened = dict(context.sessions)
    return TableForm(
        tables,
        lambda graph: opened[graph.name],
        context=context.report(),
        close=opened.clear,
    )
