"""Daemons: one for all the tests of a module that only talk to it, and fresh ones."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.service.daemon import Daemon, add_stand_in_model, kill
from tests.service.phone_commands import PhoneCommands

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = tmp_path_factory.mktemp("shared") / "home"
    add_stand_in_model(home)
    with Daemon(home) as daemon:
        daemon.create_adapter("phone")
        daemon.create_adapter("cutting", too_long="cut", max_tokens=64)
        daemon.create_adapter("free", labels=None)
        daemon.create_adapter("empty")
        yield daemon


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    add_stand_in_model(path)
    return path


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    with Daemon(home) as daemon:
        yield daemon


@pytest.fixture
def ready(shared: Daemon) -> Iterator[Daemon]:
    """The module's daemon with a fresh adapter that has examples."""
    shared.name = f"adapter-{next(_numbers)}"
    shared.script()
    shared.create_adapter()
    shared.post_examples()
    yield shared
    for pid in shared.worker_pids():
        with suppress(ProcessLookupError):  # it was about to end by itself
            kill(pid)


@pytest.fixture
def own(daemon: Daemon) -> Daemon:
    """A daemon of this test alone, with an adapter that has examples."""
    daemon.create_adapter()
    daemon.post_examples()
    return daemon


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[PhoneCommands]:
    commands = PhoneCommands(tmp_path / "it's Termux/usr")
    yield commands
    for pid in commands.running():  # of a test that failed
        os.kill(pid, signal.SIGKILL)
