"""`lorad clients`: the apps that are paired, and taking away what they have."""

from typing import Annotated
from urllib.parse import quote

import typer

from service.cli.client import delete, get, get_all, post
from service.cli.options import HomeOption, JsonOption, YesOption, home_of
from service.cli.outcome import print_json, tell, tell_deleted
from service.cli.terminal import print_table

app = typer.Typer(
    no_args_is_help=True, help="List the paired apps; revoke, renew or delete one. See: lorad pair"
)

NameArgument = Annotated[str, typer.Argument(help="The client's name; see: lorad clients list")]


@app.command("list")
def list_clients(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """List the clients with their scopes and what they have used of their quotas."""
    found = get_all(home_of(home), "/v1/clients", "clients")
    if json_output:
        print_json(found)
        return
    rows = []
    for client in found:
        quotas, usage = client["quotas"], client["usage"]
        row = (
            client["name"],
            "revoked" if client["revoked"] else ", ".join(client["scopes"]),
            _of(usage["examples_today"], quotas["examples_per_day"]),
            _of(usage["bytes"], quotas["most_bytes"]),
            _of(usage["pending"], quotas["most_pending"]),
            client["paired_at"][:10],
        )
        rows.append(row)
    print_table(("client", "scopes", "today", "bytes", "waiting", "paired"), rows)


@app.command()
def revoke(name: NameArgument, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Take a client's token away; its adapters and examples stay."""
    answer = post(home_of(home), f"{_path(name)}/revoke")
    words = (
        f"{name}'s token no longer works. Its adapters and examples are kept; to give it "
        f"access again: lorad pair {name} --replace …"
    )
    tell(answer, words, json_output)


@app.command()
def rotate(name: NameArgument, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Give a client a new token and server key; the old ones stop at once."""
    answer = post(home_of(home), f"{_path(name)}/rotate")
    if json_output:
        print_json(answer)
        return
    typer.echo(f"{name}'s old token and server key no longer work. The new ones, shown this once:")
    for key in ("token", "server_key_id", "server_key"):
        typer.echo(f"  {key}: {answer[key]}")


@app.command("delete")
def delete_client(
    name: NameArgument,
    yes: YesOption = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Delete a client with all its adapters, versions and examples."""
    place = home_of(home)
    if not yes:
        size = get(place, _path(name))["usage"]["bytes"]
        typer.confirm(
            f"Delete {name} with all its adapters, versions and examples ({size} bytes of text)?",
            abort=True,
            err=True,
        )
    tell_deleted(name, delete(place, _path(name)), json_output)


def _of(used: int, most: int | None) -> str:
    return f"{used:,}" if most is None else f"{used:,} of {most:,}"


def _path(name: str) -> str:
    return f"/v1/clients/{quote(name, safe='')}"
