"""From nothing to a running daemon and back: real pip, real runit, and a pkg that is played."""

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

from tests.house.repository import ROOMS, ROOT
from tests.termux.fake_termux import FakeTermux, until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PACKAGES = (
    "python python-pip python-numpy python-torch python-onnxruntime termux-services termux-api"
)
FROM_PKG = ("numpy", "onnxruntime", "pip", "torch", "torchgen")
"""What a phone has from pkg, outside the environment; here it is what the tests run with."""


def put_project(termux: FakeTermux) -> Path:
    """A copy of what the project is on a phone."""
    tree = termux.home / "lorad"
    for folder in (*ROOMS, "termux"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("constraints*.txt"), *ROOT.glob("*.toml")):
        shutil.copy(file, tree)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    return tree


def put_packages(termux: FakeTermux, folder: Path) -> dict[str, str]:
    """What pkg has installed; the variables that make it so for every program."""
    for command in (HERE / "bin").iterdir():
        shutil.copy(command, termux.prefix / "bin")
    (termux.prefix / "bin/python3").symlink_to(Path(sys.executable).resolve())
    notes, from_pkg, index = (folder / name for name in ("notes", "from pkg", "empty index"))
    for made in (notes, from_pkg, index):
        made.mkdir()
    for name in ("calls", "failing", "version"):
        (notes / name).touch()
    (notes / "installed").write_text(PACKAGES.replace(" ", "\n") + "\n")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name.split(".")[0].split("-")[0] in FROM_PKG:
            (from_pkg / path.name).symlink_to(path)
    return {
        "FAKE_PHONE": str(notes),
        "TERMUX_VERSION": "0.119.0",
        "LORAD_TUR_INDEX": index.as_uri(),
        "PYTHONPATH": str(from_pkg),
    } | {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}


def answers(data: Path) -> bool:
    """Whether the daemon of this home answers."""
    try:
        port = json.loads((data / "daemon.json").read_text())["port"]
        return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).is_success
    except (OSError, ValueError, httpx.TransportError):
        return False


def test_it_installs_runs_and_goes_again(termux: FakeTermux, tmp_path: Path) -> None:
    tree, variables = put_project(termux), put_packages(termux, tmp_path)
    data, environment = termux.home / ".local/share/lorad", termux.program / "venv"

    def run(*command: str | Path) -> str:
        done = termux.run(*command, environment=variables, seconds=300)
        said = done.stdout + done.stderr
        if "No matching distribution" in said or "Retrying" in said:
            assert not os.environ.get("CI"), said
            pytest.skip(f"the package index has not what a phone gets: {said[-2000:]}")
        assert done.returncode == 0, said[-5000:]
        return done.stdout

    said = run("sh", tree / "termux/install.sh")
    assert "tokenizers: imported" in said
    assert "engine:" in said, "lorad doctor said nothing"
    assert "doctor" in run("lorad", "--help")

    # It runs out of the environment, not out of this repository, and with the phone's versions.
    code = "import pydantic, service; print(pydantic.VERSION, service.__file__)"
    version, place = run(environment / "bin/python", "-P", "-c", code).split(maxsplit=1)
    assert f"\npydantic=={version}\n" in (ROOT / "constraints-android.txt").read_text()
    assert place.startswith(str(environment))

    # Nothing would be done twice, and building lorad left nothing in the project.
    said = run("sh", tree / "termux/install.sh", "--check")
    assert said.count("done before") == 8, said
    assert {path.name for path in tree.iterdir()} == {
        *ROOMS,
        "termux",
        "constraints.txt",
        "constraints-android.txt",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    }

    termux.settings("LORAD_PORT=0", "LORAD_SENSORS=fake", f"PYTHONPATH={variables['PYTHONPATH']}")
    termux.enable()
    until(lambda: answers(data), 30)

    assert f"Your data stays: {data}" in run("sh", tree / "termux/uninstall.sh")
    assert (data / "lorad.db").exists()
    assert not termux.program.exists()
    assert not termux.service.exists()
    assert not (termux.prefix / "bin/lorad").exists()
    assert not [line for line in termux.processes().values() if "lorad serve" in line]
