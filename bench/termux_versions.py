"""Does our code run with the versions that a phone has, not only with those of constraints.txt?

Makes .venv-termux, which holds what constraints-android.txt names and pytest, and nothing else: no
safetensors, no onnxruntime-qnn, no transformers. Where a phone's version is another than .venv's it
is installed; the rest are links to .venv's. Two differ from a phone all the same, and the output
says so: Python is the one at hand, and torch is .venv's, because no package index that a machine of
ours reaches has a build of a phone's torch without CUDA. Then `TESTS` run there.

    python -m bench.termux_versions           # the environment, and every test below
    python -m bench.termux_versions -k door   # arguments for pytest
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from bench.android_requirements import PINS_FILE, ROOT, read_pins

ENVIRONMENT = ROOT / ".venv-termux"
KEPT = ("torch", "setuptools")  # torch is .venv's, and setuptools follows torch
TOOLS = (
    "execnet",
    "hypothesis",
    "iniconfig",
    "lorad",
    "pluggy",
    "pytest",
    "pytest-xdist",
    "sortedcontainers",
)
# Each of them touches what differs: pydantic and what it makes of a document, tokenizers,
# numpy and onnxruntime, and a training, a resumption, an import and answers without safetensors.
TESTS = (
    "tests/house/test_termux_versions.py",
    "tests/npu/test_engine_contract.py",
    "tests/npu/test_quantize.py",
    "tests/npu/test_sessions.py",
    "tests/service/test_bad_input.py",
    "tests/service/test_door.py",
    "tests/service/test_examples.py",
    "tests/service/test_ndjson.py",
    "tests/service/test_openapi.py",
    "tests/service/test_patch.py",
    "tests/service/test_strict_json.py",
    "tests/service/test_version_import.py",
    "tests/trainer/test_growing_text.py",
    "tests/trainer/test_predictor.py",
    "tests/trainer/test_recovery.py::"
    "test_killed_at_any_stage_and_twice_in_a_row_it_is_the_same_run",
    "tests/trainer/test_worker.py::test_a_run_publishes_a_measured_version",
)


def other_versions() -> dict[str, str]:
    """Name to version of what a phone has in another version than this interpreter."""
    pins = read_pins(PINS_FILE)
    return {
        name: version
        for name, version in pins.items()
        if name not in KEPT and distribution(name).version != version
    }


def make(folder: Path) -> Path:
    """Make the environment, unless it is already the one that would be made; its interpreter.

    Raises subprocess.CalledProcessError where a package can't be installed.
    """
    installed = other_versions()
    linked = [distribution(name) for name in (*read_pins(PINS_FILE), *TOOLS)]
    linked = [one for one in linked if one.name.lower().replace("_", "-") not in installed]
    python, stamp = folder / "bin/python", folder / "made-of"
    content = "\n".join(
        [
            sys.version,
            *(f"{name}=={version}" for name, version in sorted(installed.items())),
            *sorted(f"{one.name}=={one.version} linked" for one in linked),
        ]
    )
    if stamp.exists() and stamp.read_text() == content:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = f"-m pip --python {python} install --quiet --disable-pip-version-check --no-compile"
    wheels = [f"{name}=={version}" for name, version in sorted(installed.items())]
    subprocess.run(
        [sys.executable, *pip.split(), "--no-deps", "--only-binary=:all:", *wheels], check=True
    )
    (site,) = folder.glob("lib/python*/site-packages")
    for one in linked:
        link(one, site)
    (site / "lorad.pth").write_text(f"{ROOT}\n")
    stamp.write_text(content)
    return python


def link(package: Distribution, site: Path) -> None:
    """Links in `site` to all that the package has in this interpreter's own folder."""
    here = Path(sysconfig.get_path("platlib"))
    tops = {Path(file).parts[0] for file in package.files or []}
    for name in tops - {"..", "__pycache__"}:
        source, target = here / name, site / name
        if source.exists() and not target.exists() and not name.startswith("__editable__"):
            target.symlink_to(source)


def main() -> int:
    """Make the environment and run the tests in it; pytest's exit code, or 1 without one."""
    try:
        python = make(ENVIRONMENT)
    except subprocess.CalledProcessError as error:
        print(f"The environment with Termux's versions can't be made: {error}", file=sys.stderr)
        return 1
    differing = ", ".join(f"{name} {version}" for name, version in other_versions().items())
    pin = read_pins(PINS_FILE)["torch"]
    print(
        f"As on a phone: {differing}; no safetensors, no onnxruntime-qnn. Not as on a phone: "
        f"Python {sys.version.split()[0]}, torch {distribution('torch').version} (there {pin})",
        flush=True,
    )
    return pytest(python, sys.argv[1:])


def pytest(python: Path, arguments: Sequence[str]) -> int:
    """Run `TESTS`, with no zone data but those of tzdata: a phone's system has none."""
    runner = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not emulator"]
    at_once = ["-n", "2", "--dist", "loadfile"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*runner, *at_once, *TESTS, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONTZPATH": ""},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
