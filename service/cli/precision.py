"""`lorad model precision`: which format each frozen matrix has, and what the others would cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import terminal
from service.cli.options import HomeOption, JsonOption, settings_with
from service.cli.outcome import fail, print_json
from service.home import Home
from service.models import Manifest, ModelError, ModelFolder

if TYPE_CHECKING:
    from service.precision_record import Candidate, Change, Matrix, PrecisionRecord

_FORMATS = ("int4", "int4_min", "int8", "fp16")
_REASONS = {
    "exact": "changes least",
    "tolerance": "inside the tolerance",
    "budget": "for the budget",
}


def precision(
    name: Annotated[str, typer.Argument(help="The base model.")],
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the formats of a base model's matrices and what each costs the gradients."""
    from service.precision_record import RecordError, read_record

    folder = Home.at(settings_with(home=home).home).models
    try:
        model = ModelFolder(folder).get(name)
        record = read_record(folder / name, model.base_hash)
    except (ModelError, RecordError) as error:
        fail(str(error))
    if json_output:
        print_json(_unmeasured(model) if record is None else record.model_dump(mode="json"))
    elif record is None:
        _print_unmeasured(model)
    else:
        _print_record(name, record)


def _unmeasured(model: Manifest) -> dict[str, Any]:
    """What is known without a record."""
    info = model.info()
    return {
        "base_hash": info.base_hash,
        "format": info.format,
        "formats": model.formats,
        "bytes_per_parameter": info.bytes_per_parameter,
        "measured": False,
    }


def _print_unmeasured(model: Manifest) -> None:
    info = model.info()
    typer.echo(
        f"{model.name}: {', '.join(info.formats)}, {info.bytes_per_parameter:.3f} bytes per "
        "parameter. Nothing was measured; a model is measured when it is added:\n"
        "  lorad model add ANOTHER_NAME SOURCE --format auto"
    )


def _print_record(name: str, record: PrecisionRecord) -> None:
    console = terminal.console()
    mix, texts = record.mix, record.calibration["texts"]
    budget = "no budget"
    if record.budget is not None:
        budget = f"a budget of {record.budget / mix.parameters:.3f} bytes per parameter"
    console.print(
        f"{name}: {mix.bytes_per_parameter:.3f} bytes per parameter, {mix.bytes:,} bytes; "
        f"tolerance {record.tolerance:g}, {budget}.\n"
        f"The adapter's gradients move by {mix.measured.change:.2g} (cosine "
        f"{mix.measured.cosine:.5f}), estimated {mix.estimate:.2g}; the worst tensor, "
        f"{mix.measured.worst_tensor}, by {mix.measured.worst_change:.2g}.",
    )
    if mix.excess > 0:
        console.print(f"The budget asked for {mix.excess:.2g} more than the tolerance.")
    console.print(
        f"Measured on {texts['tokens']} tokens of {texts['file']}, one matrix at a time, against "
        "fp32 weights.",
    )
    _print_kinds(console, record)
    _print_matrices(console, record)


def _print_kinds(console: Any, record: PrecisionRecord) -> None:
    """One line for all matrices of a kind; changes as the root of their mean square."""
    from rich.table import Table

    kinds: dict[str, list[Matrix]] = {}
    for matrix in record.matrices:
        kinds.setdefault(matrix.name.rpartition(".")[2], []).append(matrix)
    table = Table(title="by kind: forward / input gradient, mean change of one matrix")
    for title in ("kind", "matrices", "chosen", "bytes", *_FORMATS):
        table.add_column(title, justify="left" if title in ("kind", "chosen") else "right")
    for kind, matrices in kinds.items():
        chosen = sorted({matrix.format for matrix in matrices})
        counts = [f"{sum(m.format == f for m in matrices)} {f}" for f in chosen]
        table.add_row(
            kind,
            str(len(matrices)),
            ", ".join(counts),
            f"{sum(matrix.bytes for matrix in matrices):,}",
            *(_means(matrices, format) for format in _FORMATS),
        )
    console.print(table)


def _means(matrices: list[Matrix], format: str) -> str:
    found = [c for matrix in matrices for c in matrix.candidates if c.format == format]
    forward = _root_mean_square([c.forward.change for c in found])
    backward = [c.input_gradient.change for c in found if c.input_gradient is not None]
    return f"{forward} / {_root_mean_square(backward)}"


def _root_mean_square(values: list[float]) -> str:
    if not values:
        return "-"
    mean = sum(value**2 for value in values) / len(values)
    return f"{mean**0.5:.1e}"


def _print_matrices(console: Any, record: PrecisionRecord) -> None:
    """Two lines a matrix: each direction's change and cosine for every candidate."""
    from rich.table import Table

    table = Table(title="by matrix: change and cosine of the adapter's gradients")
    for title in ("matrix", "chosen", "bytes", "direction", *_FORMATS):
        table.add_column(title, justify="right" if title == "bytes" else "left")
    for matrix in record.matrices:
        candidates = {candidate.format: candidate for candidate in matrix.candidates}
        heads = [
            (_short(matrix), matrix.format, f"{matrix.bytes:,}", "forward"),
            ("", _REASONS[matrix.reason], "", "input gradient"),
        ]
        for head, cells in zip(heads, _directions(candidates), strict=True):
            table.add_row(*head, *cells)
    console.print(table)


def _directions(candidates: dict[str, Candidate]) -> Iterator[list[str]]:
    rows = [candidates.get(format) for format in _FORMATS]
    yield [_cell(None if row is None else row.forward) for row in rows]
    yield [_cell(None if row is None else row.input_gradient) for row in rows]


def _cell(change: Change | None) -> str:
    return "-" if change is None else f"{change.change:.1e} {change.cosine:.5f}"


def _short(matrix: Matrix) -> str:
    """`3 down_proj` for `layers.3.mlp.down_proj`."""
    parts = matrix.name.split(".")
    return matrix.name if len(parts) < 2 else f"{parts[1]} {parts[-1]}"
