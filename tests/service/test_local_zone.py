"""The device's own time zone, with whatever tells it: TZ, files, or Android's getprop."""

import logging
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from service.nights import local_zone
from tests.service.daemon import Daemon

PATIENCE = 60.0
"""Seconds that a busy machine may take for a shell; on a phone getprop has two."""

GETPROP = """#!/bin/sh
[ "$1" = persist.sys.timezone ] || exit 9
echo x >> "{calls}"
{body}
"""


class Device:
    """A device whose zone the test sets, and whose clock since its start it moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = folder / "calls"
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._patch = monkeypatch
        self._since_start = 1000.0
        monkeypatch.setattr(local_zone, "boot_seconds", lambda: self._since_start)
        monkeypatch.setattr(local_zone, "_found", None)
        monkeypatch.setattr(local_zone, "_complaint", None)
        self.wait_for_getprop(PATIENCE)

    def wait_for_getprop(self, seconds: float) -> None:
        self._patch.setattr(local_zone._getprop, "_seconds", seconds)

    def tz(self, value: str | None) -> None:
        if value is None:
            self._patch.delenv("TZ", raising=False)
        else:
            self._patch.setenv("TZ", value)

    def getprop(self, body: str) -> None:
        """An Android on which this is what getprop does."""
        self.tz(None)
        program = self._bin / "getprop"
        program.write_text(GETPROP.format(calls=self.calls, body=body))
        program.chmod(0o755)
        self._patch.setenv("PATH", f"{self._bin}:{os.environ['PATH']}")

    def after(self, seconds: float) -> str:
        self._since_start += seconds
        return str(local_zone.local_zone())


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    with monkeypatch.context() as patch:
        yield Device(tmp_path, patch)
    time.tzset()


def test_a_new_zone_is_noticed_within_five_minutes(device: Device) -> None:
    device.tz("Europe/Berlin")
    assert device.after(0) == "Europe/Berlin"
    device.tz("America/New_York")
    assert device.after(200) == "Europe/Berlin", "it isn't looked up at every tick"
    assert device.after(70) == "America/New_York"


def test_the_clock_of_the_c_library_follows(device: Device) -> None:
    for name, hours in (("Asia/Tokyo", 9), ("Asia/Kolkata", 5.5)):
        device.tz(name)
        device.after(300)
        assert datetime.now().astimezone().utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("value", "offset"),
    [
        ("Nowhere/City", timedelta(0)),
        ("JST-9", timedelta(hours=9)),
        ("../../etc/passwd", timedelta(0)),
        ("<+0545>-5:45", timedelta(hours=5, minutes=45)),
    ],
)
def test_without_a_zone_of_that_name_the_offset_of_the_clock_holds(
    device: Device, caplog: pytest.LogCaptureFixture, value: str, offset: timedelta
) -> None:
    device.tz(value)
    with caplog.at_level(logging.INFO):
        assert device.after(0) == str(timezone(offset))
        assert device.after(300) == str(timezone(offset))
        [warning] = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
        assert value in warning
        assert str(timezone(offset)) in warning
        device.tz("Europe/Berlin")
        assert device.after(300) == "Europe/Berlin"
        device.tz(value)
        device.after(300)
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 2


def test_on_android_getprop_says_it(device: Device) -> None:
    device.getprop("echo Asia/Kolkata")
    assert device.after(0) == "Asia/Kolkata"
    device.after(100)
    assert device.calls.read_text() == "x\n"
    device.getprop("echo Asia/Tokyo")
    assert device.after(300) == "Asia/Tokyo"


def test_what_getprop_leaves_behind_is_not_waited_for(device: Device) -> None:
    device.getprop("sleep 600 & echo Asia/Tokyo")
    begun = time.monotonic()
    assert device.after(0) == "Asia/Tokyo"
    assert time.monotonic() - begun < PATIENCE / 2


def test_tz_is_stronger_than_getprop(device: Device) -> None:
    device.getprop("echo Asia/Kolkata")
    device.tz("Europe/Berlin")
    assert device.after(0) == "Europe/Berlin"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("exec sleep 600", "getprop did not answer within 2 seconds"),
        ("echo", "getprop says nothing of persist.sys.timezone"),
        ("exit 3", "getprop failed with exit code 3"),
        ("echo Nowhere/City", "No time zone found with key Nowhere/City"),
        ("echo ../../etc/passwd", "../../etc/passwd"),
        ("printf '\\377\\376'", "utf-8"),
        ("yes Europe/Berlin", "getprop wrote more than 4096 bytes"),
    ],
)
def test_whatever_getprop_does_there_is_a_zone(
    device: Device, caplog: pytest.LogCaptureFixture, body: str, named: str
) -> None:
    device.getprop(body)
    if "sleep" in body:
        device.wait_for_getprop(2.0)
    begun = time.monotonic()
    zone = device.after(0)
    assert time.monotonic() - begun < PATIENCE / 2
    local = datetime.now().astimezone().utcoffset()
    assert local is not None
    assert zone == str(timezone(local))
    [warning] = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
    assert named in warning
    device.getprop("echo Asia/Tokyo")
    device.wait_for_getprop(PATIENCE)
    assert device.after(300) == "Asia/Tokyo"


def test_a_daemon_whose_getprop_hangs_serves_all_the_same(home: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "getprop"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    environment = {"TZ": "", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    with Daemon(home, environment=environment) as daemon:
        answer = daemon.http.get("/v1/schedule", timeout=15)
        assert answer.status_code == 200
        assert answer.json()["zone"].startswith("UTC")
        begun = time.monotonic()
        assert daemon.http.get("/v1/schedule").status_code == 200
        assert time.monotonic() - begun < 2, "and it isn't waited for again"
