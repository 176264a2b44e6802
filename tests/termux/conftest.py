"""A fake Termux for each test, of which no process outlives the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.termux.fake_termux import SHELLS, FakeTermux, need_programs


@pytest.fixture(params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest) -> str:
    """For tests that hold in each shell."""
    name: str = request.param
    return name


@pytest.fixture
def termux(tmp_path: Path) -> Iterator[FakeTermux]:
    """With dash as its sh, as Termux has it."""
    yield from _in(tmp_path, "dash")


@pytest.fixture
def busybox(tmp_path: Path) -> Iterator[FakeTermux]:
    """With busybox' sh."""
    yield from _in(tmp_path, "busybox")


@pytest.fixture
def termux_of_shell(tmp_path: Path, shell: str) -> Iterator[FakeTermux]:
    """With each of them."""
    yield from _in(tmp_path, shell)


def _in(folder: Path, shell: str) -> Iterator[FakeTermux]:
    need_programs()
    fake = FakeTermux(folder, shell)
    yield fake
    fake.kill_all()
