"""Does the runtime set install on Termux without a compiler?

Resolves the dependencies of pyproject.toml with uv for Termux's Python on an arm64 phone, wheels
only. What Termux itself offers as binaries (`PROVIDED`) is put in uv's way as empty stand-in wheels
of exactly those versions; all else must come from PyPI as a wheel that an Android interpreter
accepts, at the version that CI tests (constraints.txt). The solution is constraints-android.txt.

    python -m bench.android_requirements            # checks that file against a new resolution
    python -m bench.android_requirements --write    # makes it anew
    python -m bench.android_requirements --add REQ  # what if we depended on REQ, too?
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS_FILE = ROOT / "constraints-android.txt"
PYTHON = "3.14"
PLATFORM = "aarch64-linux-android"
API_LEVEL = "24"  # fixed in Termux's Python, whatever the phone's own level
WHEEL_TAG = f"cp314-cp314-android_{API_LEVEL}_arm64_v8a"

# A package that nothing else here needs, required on Android only: its absence from a solution
# means that uv judged the environment markers for another system.
PROBE = "iniconfig"
PROBE_MARKER = f"sys_platform == 'android' and python_version == '{PYTHON}'"

# Their versions follow from what Termux offers, so they may differ from those of constraints.txt.
FOLLOWERS = ("pydantic", "setuptools")


@dataclass(frozen=True)
class Provided:
    """A compiled package that a phone gets as a binary from elsewhere than PyPI.

    `requires` is what must be installed beside it: its own metadata's run-time needs.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()


# Termux's own packages python-numpy, python-onnxruntime and python-torch.
FROM_TERMUX = (
    Provided("numpy", "2.4.4"),
    Provided("onnxruntime", "1.29.0", ("flatbuffers", "numpy", "packaging", "protobuf")),
    Provided(
        "torch",
        "2.11.0",
        ("filelock", "fsspec", "jinja2", "networkx", "setuptools<82", "sympy", "typing-extensions"),
    ),
)
# Wheels of the Termux User Repository. tokenizers' metadata also asks for huggingface-hub, which
# needs PyYAML and hf-xet, both without an Android wheel; tokenizers loads that package only to
# download, so a phone installs tokenizers with --no-deps (a test runs it without huggingface-hub).
FROM_TUR = (
    Provided("pydantic-core", "2.41.5", ("typing-extensions>=4.14.1",)),
    Provided("tokenizers", "0.23.1"),
)
PROVIDED = (*FROM_TERMUX, *FROM_TUR)


class NeedsCompilerError(Exception):
    """No set of Android or pure-Python wheels satisfies the requirements; carries uv's reason."""


class IndexUnreachableError(Exception):
    """The package index did not answer, so nothing is known."""


class MarkersMisjudgedError(Exception):
    """The resolver did not judge environment markers for Android."""


def runtime_requirements() -> list[str]:
    """The requirement lines of pyproject.toml's `project.dependencies`."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies: list[str] = tomllib.load(file)["project"]["dependencies"]
    return dependencies


def read_pins(path: Path) -> dict[str, str]:
    """Name (lower case) to version of the `name==version` lines of a constraints file."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def write_stand_in(folder: Path, package: Provided) -> None:
    """Write an empty wheel that has the package's name, version, needs and Termux's wheel tag."""
    stem = f"{package.name.replace('-', '_')}-{package.version}"
    files = {
        f"{stem}.dist-info/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {package.name}", f"Version: {package.version}"]
            + [f"Requires-Dist: {need}" for need in package.requires]
        ),
        f"{stem}.dist-info/WHEEL": "\n".join(
            ["Wheel-Version: 1.0", "Root-Is-Purelib: false", f"Tag: {WHEEL_TAG}", ""]
        ),
    }
    record = f"{stem}.dist-info/RECORD"
    rows = []
    with zipfile.ZipFile(folder / f"{stem}-{WHEEL_TAG}.whl", "w") as wheel:
        for name, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(text.encode())}")
            wheel.writestr(name, text)
        wheel.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")


def resolve(requirements: Iterable[str], pins: Mapping[str, str]) -> dict[str, str]:
    """Resolve for Termux's Python from wheels alone; returns name to version.

    `pins` hold a package to one version if it is needed at all. Raises NeedsCompilerError,
    IndexUnreachableError or MarkersMisjudgedError.
    """
    held = {**pins, **{package.name: package.version for package in PROVIDED}}
    with tempfile.TemporaryDirectory(prefix="lorad-android-") as name:
        folder = Path(name)
        for package in PROVIDED:
            write_stand_in(folder, package)
        wanted, constraints = folder / "requirements.txt", folder / "constraints.txt"
        wanted.write_text("\n".join([*requirements, f"{PROBE}; {PROBE_MARKER}"]) + "\n")
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in held.items()))
        target = f"--python-platform={PLATFORM} --python-version={PYTHON} --only-binary=:all:"
        quiet = "--no-config --no-python-downloads --no-header --no-annotate --quiet"
        uv = [sys.executable, "-m", "uv", "pip", "compile", *target.split(), *quiet.split()]
        run = subprocess.run(
            [*uv, f"--constraints={constraints}", f"--find-links={folder}", str(wanted)],
            env={**os.environ, "ANDROID_API_LEVEL": API_LEVEL},
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode != 0:
        if "No solution found" in run.stderr:
            raise NeedsCompilerError(run.stderr.strip())
        raise IndexUnreachableError(run.stderr.strip())
    solution = dict(line.split("==") for line in run.stdout.split())
    if PROBE not in solution or "onnxruntime-qnn" in solution:
        raise MarkersMisjudgedError(
            f"expected {PROBE} (required on Android only) and no onnxruntime-qnn (required on "
            f"Linux only) in the solution, found: {', '.join(solution)}"
        )
    del solution[PROBE]
    return solution


def describe(solution: Mapping[str, str]) -> str:
    """The text of constraints-android.txt: the solution, grouped by where a phone gets it."""
    groups = [
        ("Termux's own packages (pkg install)", [p.name for p in FROM_TERMUX]),
        (
            "Wheels of the Termux User Repository (pip install --no-deps)",
            [p.name for p in FROM_TUR],
        ),
    ]
    elsewhere = [name for _, names in groups for name in names]
    groups.append(("PyPI", sorted(name for name in solution if name not in elsewhere)))
    lines = [
        f"# The runtime set for Termux (Python {PYTHON}, arm64): wheels only, nothing here needs a",
        "# compiler. Complete, so that a phone can install it with --no-deps. Not yet installed on",
        "# one. Made by `make android-constraints`, checked by `make android-check`.",
    ]
    for title, names in groups:
        lines += ["", f"# {title}", *(f"{name}=={solution[name]}" for name in names)]
    return "\n".join(lines) + "\n"


def check(added: Sequence[str] = (), *, write: bool = False) -> str:
    """Resolve the runtime set plus `added`; returns what was found, in one sentence.

    Compares with constraints-android.txt, or writes it. Raises what `resolve` raises, and
    ValueError if the file is not what a new resolution gives.
    """
    pins = read_pins(ROOT / "constraints.txt")
    followers = {} if write or not PINS_FILE.exists() else read_pins(PINS_FILE)
    for name in FOLLOWERS:
        pins.pop(name, None)
        if name in followers:
            pins[name] = followers[name]
    solution = resolve([*runtime_requirements(), *added], pins)
    if write:
        PINS_FILE.write_text(describe(solution))
    elif not added and PINS_FILE.read_text() != describe(solution):
        raise ValueError(
            f"{PINS_FILE.name} differs from a new resolution of the runtime set; look at what "
            "changed with `make android-constraints` and `git diff`"
        )
    return (
        f"{len(solution)} packages for Android, Python {PYTHON}: {len(FROM_TERMUX)} from Termux, "
        f"{len(FROM_TUR)} from the Termux User Repository, "
        f"{len(solution) - len(PROVIDED)} wheels from PyPI"
    )


def main() -> int:
    """Run the check; exit code 0 if it holds, 1 if not, 2 if the package index did not answer."""
    parser = argparse.ArgumentParser(description="Resolve the runtime set for Termux.")
    parser.add_argument("--write", action="store_true", help="write constraints-android.txt")
    parser.add_argument(
        "--add", action="append", default=[], metavar="REQ", help="also require REQ"
    )
    options = parser.parse_args()
    try:
        print(check(options.add, write=options.write))
    except NeedsCompilerError as error:
        print(f"The runtime set would need a compiler on Termux.\n{error}", file=sys.stderr)
        return 1
    except (MarkersMisjudgedError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except IndexUnreachableError as error:
        print(f"The package index could not be asked.\n{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
