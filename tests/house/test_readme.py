"""README.md names every command and setting; it and the page for apps name every route."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
import typer
from fastapi import APIRouter
from fastapi.routing import APIRoute
from typer.core import TyperGroup

import service.routes
from service.cli.commands import app
from service.settings import Settings
from tests.house.repository import ROOT

README = (ROOT / "README.md").read_text()
FOR_APPS = (ROOT / "service/for_apps/README.md").read_text()


def commands(group: TyperGroup, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def settings() -> list[str]:
    prefix = Settings.model_config.get("env_prefix", "")
    of_the_daemon = {prefix + name.upper() for name in Settings.model_fields}
    return sorted(
        of_the_daemon | set(re.findall(r"LORAD_[A-Z_]+", (ROOT / "Makefile").read_text()))
    )


def routes() -> list[str]:
    modules = [
        importlib.import_module(f"service.routes.{info.name}")
        for info in pkgutil.iter_modules(service.routes.__path__)
    ]
    routers = [value for m in modules for value in vars(m).values() if isinstance(value, APIRouter)]
    return sorted(
        {r.path_format for router in routers for r in router.routes if isinstance(r, APIRoute)}
    )


ROOT_COMMAND = typer.main.get_command(app)
assert isinstance(ROOT_COMMAND, TyperGroup)


@pytest.mark.parametrize("command", list(commands(ROOT_COMMAND, "lorad")))
def test_names_every_command(command: str) -> None:
    assert command in README


@pytest.mark.parametrize("setting", settings())
def test_names_every_setting(setting: str) -> None:
    assert setting in README


@pytest.mark.parametrize("path", routes())
def test_names_every_route(path: str) -> None:
    """As a template or with real names in a curl line: /v1/runs/{id}, /v1/runs/7, /v1/runs/$RUN."""
    pattern = "[^/\\s]+".join(re.escape(part) for part in re.split(r"\{\w+\}", path))
    assert re.search(pattern + r"(?![\w/])", README + FOR_APPS)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_names_the_two_commands(command: str) -> None:
    assert command in README
