"""The Kotlin client, compiled by a real compiler with real OkHttp, and the program that drives it.

The compiler and OkHttp come from npm (`make kotlin-tools` puts them into build/kotlin), the JRE and
Android's own org.json from Debian.
"""

import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import ROOT

CLIENT = ROOT / "service/for_apps/LoradClient.kt"
SAMPLE = Path(__file__).parent / "Sample.kt"
TOOLS = ROOT / "build/kotlin/node_modules"
NOBODY_IS_THERE = ("-Dhttp.proxyHost=127.0.0.1", "-Dhttp.proxyPort=1", "-Dhttp.nonProxyHosts=")
"""A proxy that the client must ignore."""
JSON_JAR = Path("/usr/share/java/com.android.json.jar")
REMEDY = (
    "THE KOTLIN CLIENT IS NOT COMPILED HERE: expected {}, found none; run make kotlin-tools, and "
    "install Debian's default-jre-headless and libandroid-json-java"
)


def missing() -> str | None:
    """What is not to be had on this machine."""
    if shutil.which("java") is None:
        return "java"
    needed = [TOOLS / "kotlin-compiler/lib/kotlin-compiler.jar", JSON_JAR]
    return next((str(path) for path in needed if not path.is_file()), None) or (
        None if okhttp() else "OkHttp in allure-commandline"
    )


def okhttp() -> list[Path]:
    """OkHttp and Okio, which lie among the libraries of one of allure-commandline's plugins."""
    folder = TOOLS / "allure-commandline/dist/plugins/jira-plugin/lib"
    return [*folder.glob("okhttp-jvm-*.jar"), *folder.glob("okio-jvm-*.jar")]


def compiled(folder: Path) -> list[str]:
    """Compile client, sample and driver, any warning being an error; the program's command."""
    if lack := missing():
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(REMEDY.format(lack))
        pytest.skip(REMEDY.format(lack))
    kotlin = TOOLS / "kotlin-compiler/lib"
    libraries = [*okhttp(), JSON_JAR]
    java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    done = subprocess.run(
        [
            *java,
            *("-cp", str(kotlin / "kotlin-preloader.jar")),
            "org.jetbrains.kotlin.preloading.Preloader",
            *("-cp", str(kotlin / "kotlin-compiler.jar")),
            "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
            *("-Werror", "-no-reflect", "-jvm-target", "1.8"),
            *("-cp", ":".join(map(str, libraries))),
            *("-d", str(folder)),
            *(str(CLIENT), str(SAMPLE), str(SAMPLE.with_name("Driver.kt"))),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    path = [folder, *libraries, kotlin / "kotlin-stdlib.jar"]
    return [*java, *NOBODY_IS_THERE, "-cp", ":".join(map(str, path)), "lorad.DriverKt"]


class Program:
    """The driver's process: asks it, and reads what it says."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def ask(self, do: str, kept: Path, **more: Any) -> tuple[dict[str, Any], list[str]]:
        """What came of it, and the lines that were printed before."""
        assert self._process.stdin is not None
        print(
            json.dumps({"do": do, "kept": str(kept)} | more), file=self._process.stdin, flush=True
        )
        printed: list[str] = []
        while True:
            line = self._lines.get(timeout=30)
            if line.startswith(('{"value":', '{"error":')):
                return json.loads(line), printed
            printed.append(line.rstrip("\n"))

    def value(self, do: str, kept: Path, **more: Any) -> Any:
        """What it answered; it must not have failed."""
        said, _ = self.ask(do, kept, **more)
        assert "error" not in said, said
        return said["value"]

    def error(self, do: str, kept: Path, **more: Any) -> dict[str, Any]:
        """The exception that it was answered with."""
        said, _ = self.ask(do, kept, **more)
        assert "error" in said, said
        return said

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
