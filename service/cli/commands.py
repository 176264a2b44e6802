"""All commands of `lorad`, as it is put together from its modules.

These import what is large (httpx, rich, the database, the web server) inside the commands that use
it, so that no command waits for what another one needs.

Exit codes: see `service.cli.outcome`.
"""

import typer

from service.cli import adapters, clients, examples, model
from service.cli.backup import backup, restore
from service.cli.demo import demo
from service.cli.doctor import doctor
from service.cli.history import history
from service.cli.pair import pair
from service.cli.pause import pause, resume
from service.cli.predict import predict
from service.cli.report import report
from service.cli.schedule import schedule
from service.cli.serve import serve
from service.cli.status import status
from service.cli.train import train
from service.cli.versions import export, versions
from service.cli.watch import watch
from service.cli.why import why

app = typer.Typer(
    name="lorad",
    no_args_is_help=True,
    help="Trains LoRA adapters on labelled personal examples, on this device.",
    epilog="Exit codes: 0 it went well, 1 it failed, 2 wrong command line, 3 no daemon answers, "
    "4 the daemon refused or has no such thing, 130 Ctrl-C.",
    pretty_exceptions_show_locals=False,
)
app.command()(serve)
app.add_typer(model.app, name="model")
app.command()(pair)
app.add_typer(clients.app, name="clients")
app.add_typer(adapters.app, name="adapters")
app.add_typer(examples.app, name="examples")
app.command()(train)
app.command()(watch)
app.command()(status)
app.command()(why)
app.command()(doctor)
app.command()(history)
app.command()(versions)
app.command()(export)
app.command()(predict)
app.command()(schedule)
app.command()(pause)
app.command()(resume)
app.command()(backup)
app.command()(restore)
app.command()(report)
app.command()(demo)
