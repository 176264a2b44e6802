"""`termux/fetch-qnn.sh` with made-up libraries: headers, versions and nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.termux.test_bats import needs

SCRIPT = Path(__file__).parents[2] / "termux/fetch-qnn.sh"
SHELLS = [["dash"], ["busybox", "sh"]]
PROVIDER = "libonnxruntime_providers_qnn.so"
VERSION, OTHER = "v2.49.0.260812181845", "v2.48.0.260601114230"


def elf(bits: int, machine: int, *, holds: str = "") -> bytes:
    """The head of a shared library, and what stands in it."""
    head = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9) + (3).to_bytes(2, "little")
    return head + machine.to_bytes(2, "little") + bytes(44) + b"\0" + holds.encode() + b"\0"


def for_arm(version: str = VERSION) -> bytes:
    return elf(64, 183, holds=version)


def for_the_dsp(version: str = VERSION) -> bytes:
    return elf(32, 164, holds=f"hexnn_ver_{version}")


def whole() -> dict[str, bytes]:
    """What the two archives hold for two phones."""
    names = (
        "libQnnHtp",
        "libQnnHtpPrepare",
        "libQnnSystem",
        "libQnnHtpV75Stub",
        "libQnnHtpV79Stub",
    )
    return {
        PROVIDER: elf(64, 183),
        **{f"{name}.so": for_arm() for name in names},
        **{f"libQnnHtpV{arch}Skel.so": for_the_dsp() for arch in (75, 79)},
        "libQnnGpu.so": for_arm(),
        "libonnxruntime.so": elf(64, 183),
    }


@dataclass
class Termux:
    """A folder that stands for a home in Termux."""

    folder: Path

    @property
    def libraries(self) -> Path:
        return self.folder / "home/.local/share/lorad/qnn"

    def archive(self, name: str, files: Mapping[str, bytes]) -> str:
        with zipfile.ZipFile(self.folder / name, "w") as archive:
            archive.writestr("AndroidManifest.xml", "<manifest/>")
            for file, content in files.items():
                archive.writestr(f"jni/arm64-v8a/{file}", content)
                archive.writestr(f"jni/x86_64/{file}", b"of another machine")
        return str(self.folder / name)

    def program(self, name: str, script: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def run(
        self, *arguments: str, shell: list[str] | None = None, soc: str | None = "SM8750"
    ) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.folder / "home")}
        environment["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        if soc is not None:
            environment["LORAD_SOC"] = soc
        return subprocess.run(
            [*(shell or SHELLS[0]), str(SCRIPT), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
            umask=0o077,
        )

    def found(self) -> set[str]:
        return {file.name for file in self.libraries.glob("*")}

    def leftovers(self) -> list[Path]:
        home = self.libraries.parent
        return [path for path in home.glob("*") if path.name != "qnn"] if home.exists() else []


@pytest.fixture
def termux(tmp_path: Path) -> Termux:
    for program in ("dash", "busybox", "unzip"):
        needs(program)
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    return Termux(tmp_path)


WANTED = {
    PROVIDER,
    *("libQnnHtp.so", "libQnnHtpPrepare.so", "libQnnSystem.so"),
    *("libQnnHtpV79Stub.so", "libQnnHtpV79Skel.so"),
}


@pytest.mark.parametrize("shell", SHELLS, ids=["dash", "busybox"])
def test_two_archives_become_a_folder_that_fits_this_phone(
    termux: Termux, shell: list[str]
) -> None:
    files = whole()
    provider = termux.archive("provider 1.aar", {PROVIDER: files.pop(PROVIDER)})
    done = termux.run(provider, termux.archive("qnn.aar", files), shell=shell)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "All is there, for V79, of v2.49.0.260812." in done.stdout
    assert termux.found() == WANTED
    for file in termux.libraries.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        assert file.read_bytes().startswith(b"\x7fELF")
    assert termux.leftovers() == []
    again = termux.run(shell=shell)
    assert (again.returncode, "lorad doctor --npu" in again.stdout) == (0, True)
    (termux.libraries / "libQnnHtpV79Skel.so").chmod(0o600)
    unreadable = termux.run(shell=shell)
    assert unreadable.returncode == 1
    assert "libQnnHtpV79Skel.so: expected mode 0644" in unreadable.stdout
    other = termux.run(shell=shell, soc="SM8850")
    assert other.returncode == 1
    assert "missing: libQnnHtpV81Stub.so\nmissing: libQnnHtpV81Skel.so\n" in other.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=["dash", "busybox"])
def test_without_files_it_says_what_to_get_and_where(termux: Termux, shell: list[str]) -> None:
    asked = termux.run(shell=shell)
    assert asked.returncode == 1
    for words in (
        "com.qualcomm.qti:onnxruntime-android-qnn",
        "com.qualcomm.qti:qnn-runtime",
        "libQnnHtpV79Stub.so libQnnHtpV79Skel.so",
        "lib/hexagon-v??/unsigned",
        "accept the licence",
        str(termux.libraries),
    ):
        assert words in asked.stdout
    assert not termux.libraries.exists()


def test_an_sdk_and_an_archive_together(termux: Termux) -> None:
    files = whole()
    sdk = termux.folder / "qairt/2.49.0"
    for name, content in files.items():
        place = "hexagon-v79/unsigned" if "V79Skel" in name else "aarch64-android"
        if name != PROVIDER:
            (sdk / "lib" / place).mkdir(parents=True, exist_ok=True)
            (sdk / "lib" / place / name).write_bytes(content)
    alone = termux.run(str(sdk))
    assert alone.returncode == 1
    assert f"missing: {PROVIDER}" in alone.stdout
    assert "nothing was put in place" in alone.stderr
    assert (termux.found(), termux.leftovers()) == (set(), [])
    assert termux.run(str(sdk), termux.archive("p.aar", files)).returncode == 0
    assert termux.found() == WANTED


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("libQnnHtp.so", b"<html>not found</html>", "expected a library (ELF), found none"),
        ("libQnnHtp.so", b"", "expected a library (ELF), found none"),
        ("libQnnHtp.so", elf(64, 62), "found class 02, machine 3e00"),
        ("libQnnSystem.so", elf(32, 40), "found class 01, machine 2800"),
        (PROVIDER, elf(64, 183, holds="GLIBC_2.34"), "found one for Linux with glibc"),
        ("libQnnHtpV79Skel.so", for_arm(), "expected a library of the DSP (QUALCOMM DSP6)"),
        ("libQnnHtpV79Stub.so", for_the_dsp(), "expected a library for 64-bit ARM"),
        ("libQnnHtpV79Skel.so", for_the_dsp(OTHER), "Skel.so is of v2.48.0.260601, libQnnHtp.so"),
        ("libQnnHtpV79Stub.so", for_arm(OTHER), "Stub.so is of v2.48.0.260601, libQnnHtp.so"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_put_in_place(
    termux: Termux, name: str, content: bytes, words: str
) -> None:
    assert termux.run(termux.archive("good.aar", whole())).returncode == 0
    before = {file.name: file.read_bytes() for file in termux.libraries.iterdir()}
    done = termux.run(termux.archive("bad.aar", whole() | {name: content}))
    assert done.returncode == 1
    assert words in done.stdout, done.stdout
    assert "nothing was put in place" in done.stderr
    assert {file.name: file.read_bytes() for file in termux.libraries.iterdir()} == before
    assert termux.leftovers() == []


@pytest.mark.parametrize("getprop", ["echo SM8475", "exit 1", "sleep 600", "echo"])
def test_for_a_soc_that_is_not_known_all_are_taken(termux: Termux, getprop: str) -> None:
    termux.program("getprop", f'[ "$1" = ro.soc.model ] || exit 9\n{getprop}')
    termux.program("timeout", 'shift\nexec /usr/bin/timeout 0.3 "$@"')
    done = termux.run(termux.archive("all.aar", whole()), soc=None)
    assert done.returncode == 0, done.stdout
    assert "set LORAD_SOC" in done.stdout
    assert "for V75 V79" in done.stdout
    assert termux.found() == {*WANTED, "libQnnHtpV75Stub.so", "libQnnHtpV75Skel.so"}


def test_the_phone_tells_its_soc(termux: Termux) -> None:
    termux.program("getprop", "echo SM8650-AC")
    assert "its NPU a V75" in termux.run(termux.archive("all.aar", whole()), soc=None).stdout
    assert "libQnnHtpV75Skel.so" in termux.found()
    assert "libQnnHtpV79Skel.so" not in termux.found()


def test_nothing_is_downloaded_without_the_users_word(termux: Termux) -> None:
    archive = termux.archive("all.aar", whole())
    termux.program(
        "curl",
        f'echo "$@" >> {termux.folder}/curl; for last; do :; done\n'
        'while [ "$1" != --output ]; do shift; done\n'
        f'cp {archive} "$2"',
    )
    address = "https://example.org/qnn-runtime.aar"
    refused = termux.run(address)
    assert refused.returncode == 1
    assert "--accept-licence" in refused.stderr
    assert not (termux.folder / "curl").exists()
    assert termux.run("--accept-licence", "http://example.org/a.aar").returncode == 1
    assert not (termux.folder / "curl").exists()
    assert termux.run("--accept-licence", address).returncode == 0
    [asked] = (termux.folder / "curl").read_text().splitlines()
    assert asked.endswith(f" {address}")
    assert "--proto =https --proto-redir =https" in asked
    assert termux.found() == WANTED


@pytest.mark.parametrize("argument", ["nowhere.aar", "http://example.org/a.aar", "broken.aar"])
def test_what_is_no_source_is_refused(termux: Termux, argument: str) -> None:
    (termux.folder / "broken.aar").write_bytes(b"PK no archive")
    named = argument if ":" in argument else str(termux.folder / argument)
    done = termux.run(named)
    assert done.returncode == 1
    assert "expected" in done.stderr
    assert (termux.found(), termux.leftovers()) == (set(), [])


def test_its_options_are_told(termux: Termux) -> None:
    told = termux.run("--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "--accept-licence" in told.stdout
    assert termux.run("--force").returncode == 2
