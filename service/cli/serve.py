"""`lorad serve`: the daemon."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import HomeOption, gate_limits, settings_with
from service.cli.outcome import fail, print_json_line

app = typer.Typer(name="lorad", pretty_exceptions_show_locals=False)
"""`lorad` with this command alone."""


@app.callback()
def only_serve() -> None:
    """Keep its name on the command line, as among the others."""


@app.command()
def serve(
    home: HomeOption = None,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1; 0 for a free one. Default: 8765.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="auto, qnn, onnx_cpu or torch_cpu, for new runs.")
    ] = None,
    form: Annotated[
        str | None, typer.Option(help="auto, inputs or table: how the NPU gets the frozen weights.")
    ] = None,
    soc: Annotated[
        str | None,
        typer.Option(help="SM8550, SM8650, SM8750 or SM8850: make the NPU's graphs for this one."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of new runs.")] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Say where it serves as a JSON object on one line.")
    ] = False,
) -> None:
    """Run the daemon in the foreground until Ctrl-C or SIGTERM."""
    # Of every annotation FastAPI asks whether it is of pydantic 1, and would load that (2 MB) to
    # know; without it the answer is no.
    sys.modules["pydantic.v1"] = None  # type: ignore[assignment]
    # Imported here, so that the other commands don't wait for a database and a web server.
    from service.daemon import DaemonError
    from service.daemon import serve as serve_home
    from service.secret_file import SecretFileError
    from storage.database import DatabaseFileError
    from storage.migrations import SchemaVersionError

    settings = settings_with(
        home=home, port=port, engine=engine, form=form, soc=soc, threads=threads
    )
    limits = gate_limits()
    try:
        serve_home(settings, limits, _announce_json if json_output else _announce)
    except (
        DaemonError,
        SecretFileError,
        DatabaseFileError,
        SchemaVersionError,
        OSError,
    ) as error:
        fail(str(error))


def _announce(port: int, token: Path) -> None:
    typer.echo(f"lorad serves http://127.0.0.1:{port}")
    typer.echo(f"the owner's token lies in {token}")


def _announce_json(port: int, token: Path) -> None:
    print_json_line({"url": f"http://127.0.0.1:{port}", "port": port, "token_file": str(token)})
