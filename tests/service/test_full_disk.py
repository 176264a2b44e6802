"""A disk that is really full: refused in defined words, nothing accepted lost, and then it goes on.

The home lies on a small file system of its own. Mounting one takes root, so for anyone else the
tests of this file run once more in a namespace in which they are.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.daemon import Daemon, add_stand_in_model

BYTES = 4 * 1024 * 1024
IS_ROOT = os.geteuid() == 0

as_root = pytest.mark.skipif(not IS_ROOT, reason="needs root: run by the first test of this file")


@pytest.mark.skipif(IS_ROOT, reason="is root already: the tests below run by themselves")
def test_as_root_of_a_namespace() -> None:
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("neither root nor allowed to make a namespace: no small disk can be mounted")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(["unshare", "-Urm", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(disk)], check=True)
    try:
        add_stand_in_model(disk / "home")
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no byte free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


def assert_full(response: httpx.Response) -> None:
    assert response.status_code == 507, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert int(response.headers["retry-after"]) > 0
    assert "full" in response.json()["detail"]


def post_until_full(daemon: Daemon, text: str) -> list[int]:
    """Ids of what was accepted before the third refusal."""
    kept: list[int] = []
    refused = 0
    for number in itertools.count():
        body = {"input": f"{number} {text}", "label": "now", "split": "train"}
        response = daemon.http.post(daemon.path("/examples"), json=body)
        if response.status_code == 201:
            kept += [example["id"] for example in response.json()["examples"]]
        else:
            assert_full(response)
            refused += 1
            if refused == 3:
                break
    return kept


@as_root
def test_a_full_disk_refuses_and_loses_nothing(small: Path) -> None:
    with Daemon(small / "home") as daemon:
        daemon.create_adapter(too_long="cut")
        path = daemon.path("/examples")
        kept = post_until_full(daemon, "long " * 4000)
        assert kept
        filler = fill(small)
        kept += post_until_full(daemon, "short")  # what the log's file has room for still fits
        for where, sent in (
            ("/v1/adapters", {"name": "second", "base_model": "tiny"}),
            (daemon.path("/runs"), {}),
        ):
            assert_full(daemon.http.post(where, json=sent))

        assert daemon.http.get("/healthz").status_code == 200
        counts = daemon.adapter()["examples"]
        assert counts["train"] == len(kept)
        assert daemon.adapter()["current_run"] is None
        assert len(daemon.http.get("/v1/adapters").json()["adapters"]) == 1

        filler.unlink()
        subprocess.run(["mount", "-o", f"remount,size={BYTES * 8}", str(small)], check=True)
        (small / "home/sensors.json").write_text('{"storage_bytes": 2000000000}')
        response = daemon.http.post(path, json={"input": "again", "label": "now"})
        assert response.status_code == 201, response.text
        kept += [example["id"] for example in response.json()["examples"]]
        daemon.wait_until_ended(daemon.train())

        daemon.kill()
        daemon.start()
        page = daemon.http.get(path, params={"limit": 1000}).json()["examples"]
        assert [example["id"] for example in page] == kept
        assert "Traceback" not in daemon.log()
        assert "unhandled" not in daemon.log()


@as_root
def test_a_daemon_started_on_a_full_disk_says_so_and_starts_when_there_is_space(
    small: Path,
) -> None:
    with Daemon(small / "home") as daemon:
        daemon.create_adapter()
        daemon.stop()
        filler = fill(small)
        with pytest.raises(AssertionError) as refused:
            daemon.start()
        assert "can't be opened" in str(refused.value)
        assert "Traceback" not in str(refused.value)
        filler.unlink()
        daemon.start()
        assert daemon.adapter()["name"] == "phone"
