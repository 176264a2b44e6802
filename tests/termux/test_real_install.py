"""install.sh with a real Python, a real pip and the real pinned wheels; only pkg is played."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.house.repository import ROOMS, ROOT

HERE = Path(__file__).parent
FROM_PKG = ("numpy", "onnxruntime", "pip", "torch", "torchgen")
"""What a phone has from pkg, outside the environment; here it is what the tests run with."""


@pytest.fixture
def phone(tmp_path: Path) -> dict[str, str]:
    """A fake $PREFIX with this computer's Python in it, a fake $HOME and a copy of the project."""
    prefix, home, notes = tmp_path / "usr", tmp_path / "my home", tmp_path / "notes"
    shutil.copytree(HERE / "bin", prefix / "bin")
    notes.mkdir()
    for name in ("calls", "failing", "imported", "version"):
        (notes / name).touch()
    packages = "python python-pip python-numpy python-torch python-onnxruntime"
    (notes / "installed").write_text(
        "\n".join([*packages.split(), "termux-services", "termux-api"])
    )
    (prefix / "bin/python3").symlink_to(Path(sys.executable).resolve())
    (prefix / "bin/sh").symlink_to(shutil.which("sh") or "sh")

    tree = home / "lorad"
    for folder in (*ROOMS, "termux"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("constraints*.txt"):
        shutil.copy(file, tree)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    (tree / "termux/service").mkdir(exist_ok=True)
    (tree / "termux/service.sh").write_text('mkdir -p "$PREFIX/var/service/lorad"\n')

    from_pkg = tmp_path / "from pkg"
    from_pkg.mkdir()
    here = Path(sysconfig.get_path("purelib"))
    for path in here.iterdir():
        if path.name.split(".")[0].split("-")[0] in FROM_PKG:
            (from_pkg / path.name).symlink_to(path)
    (tmp_path / "empty index").mkdir()
    return {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",  # or each of many starts compiles everything anew
        "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}",
        "PREFIX": str(prefix),
        "HOME": str(home),
        "FAKE_PHONE": str(notes),
        "TERMUX_VERSION": "0.119.0",
        "LORAD_TUR_INDEX": (tmp_path / "empty index").as_uri(),
        "PYTHONPATH": str(from_pkg),
    }


@pytest.mark.slow
def test_it_really_installs(phone: dict[str, str], tmp_path: Path) -> None:
    tree = Path(phone["HOME"]) / "lorad"
    install = ["sh", str(tree / "termux/install.sh")]
    first = subprocess.run(install, env=phone, capture_output=True, text=True, check=False)
    if "No matching distribution" in first.stdout + first.stderr or "Retrying" in first.stderr:
        if os.environ.get("CI"):
            pytest.fail(first.stderr)
        pytest.skip(f"the package index has not what a phone gets: {first.stderr[-2000:]}")
    assert first.returncode == 0, first.stdout[-3000:] + first.stderr[-3000:]
    assert "tokenizers: imported" in first.stdout
    assert "engine:" in first.stdout, "lorad doctor said nothing"

    environment = Path(phone["HOME"]) / ".local/lib/lorad/venv"
    launcher = ["sh", str(Path(phone["PREFIX"]) / "bin/lorad")]
    said = subprocess.run(
        [*launcher, "--help"], env=phone, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "doctor" in said.stdout

    # What ran came out of the environment, not out of this repository, and at the phone's versions.
    code = "import pydantic, service; print(pydantic.VERSION, service.__file__)"
    found = subprocess.run(
        [environment / "bin/python", "-P", "-c", code],
        env=phone,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split(maxsplit=1)
    pins = (ROOT / "constraints-android.txt").read_text()
    assert f"\npydantic=={found[0]}\n" in pins
    assert found[1].startswith(str(environment))

    # And nothing is done twice.
    second = subprocess.run(
        [*install, "--check"], env=phone, capture_output=True, text=True, check=True
    )
    assert "would be done" not in second.stdout
    assert second.stdout.count("done before") == 8, second.stdout
    assert not (tree / "build").exists()
    assert not list(tree.glob("*.egg-info"))
