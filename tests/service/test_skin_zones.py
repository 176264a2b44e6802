"""The temperature of the case among the kernel's thermal zones, with their traps."""

from pathlib import Path

import pytest

from service.sensors.skin_zones import SkinZones

ZONES = [
    ("cpu-1-1-1", "104200"),
    ("gpuss-0", "69000"),
    ("pm8550-bcl-lvl0", "0"),
    ("vbat", "4187"),
    ("battery", "31000"),
    ("sys-therm-0", "61000"),
    ("quiet-therm", "58000"),
    ("socd", "0"),
    ("sdr0_pa", "-273000"),
]


class Zones:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 100.0
        self.skin = SkinZones(lambda: self.now, folder)
        self.count = 0
        for name, temp in ZONES:
            self.add(name, temp)

    def add(self, name: str, temp: str) -> Path:
        zone = self.folder / f"thermal_zone{self.count}"
        self.count += 1
        zone.mkdir(parents=True)
        (zone / "type").write_text(f"{name}\n")
        (zone / "temp").write_text(f"{temp}\n")
        return zone

    def value(self) -> float | None:
        return self.skin.read().value


@pytest.fixture
def zones(tmp_path: Path) -> Zones:
    return Zones(tmp_path)


@pytest.mark.parametrize(
    "name", ["skin-msm-therm", "skin-therm", "skin_temp", "mtktsskin", "VIRTUAL-SKIN", "Skin1"]
)
def test_the_skin_s_zone_is_told_by_its_name(zones: Zones, name: str) -> None:
    zones.add(name, "34250")
    found = zones.skin.read()
    assert (found.value, found.source, found.at) == (34.25, f"sysfs {name}", 100.0)
    assert (found.why, found.absent) == (None, False)


def test_no_other_zone_is_taken_for_it(zones: Zones) -> None:
    found = zones.skin.read()
    assert (found.value, found.absent) == (None, True)
    assert found.why is not None
    assert "none of the 9 thermal zones" in found.why


def test_of_several_the_hottest_counts(zones: Zones) -> None:
    zones.add("skin-front", "34000")
    zones.add("skin-back", "39500")
    zones.add("skin-back", "38500")
    zones.add("skin-broken", "-273000")
    found = zones.skin.read()
    assert (found.value, found.source) == (39.5, "sysfs skin-back")


@pytest.mark.parametrize(
    "temp", ["-273000", "-40960", "-40000", "0", "34", "342", "-999", "100001", "", "hot", "34.2"]
)
def test_what_is_no_temperature_of_a_case_is_none(zones: Zones, temp: str) -> None:
    zone = zones.add("skin-therm", temp)
    found = zones.skin.read()
    assert (found.value, found.absent) == (None, True)
    (zone / "temp").write_text("33000\n")
    assert zones.value() == 33
    (zone / "temp").write_text(temp)
    found = zones.skin.read()
    assert (found.value, found.absent) == (None, False)


def test_where_nothing_can_be_read_it_is_absent(tmp_path: Path) -> None:
    found = SkinZones(lambda: 0.0, tmp_path / "none").read()
    assert found.absent
    assert found.why is not None
    assert "no thermal zone under" in found.why


def test_zones_are_opened_not_listed(zones: Zones, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zones whose files can't be read stand between, and some numbers are free."""
    zones.count = 40
    (zones.add("skin-denied", "34000") / "type").unlink()
    zones.count = 127
    zones.add("skin-therm", "35000")

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert zones.value() == 35


def test_one_that_has_answered_and_is_silent_now_is_unknown(zones: Zones) -> None:
    front = zones.add("skin-front", "41000")
    zones.add("skin-back", "35000")
    assert zones.value() == 41
    (front / "temp").unlink()
    (front / "temp").mkdir()  # can't be read any more, by root neither
    for _ in range(5):
        found = zones.skin.read()
        assert (found.value, found.absent) == (None, False)
        assert found.why is not None
        assert found.why.startswith("skin-front: ")
        zones.now += 500
    (front / "temp").rmdir()
    (front / "temp").write_text("36000")
    assert zones.value() == 36


def test_a_zone_that_got_another_number_is_found_again(zones: Zones) -> None:
    zone = zones.add("skin-therm", "36000")
    assert zones.value() == 36
    (zone / "type").write_text("cpu-0-0-0")
    (zone / "temp").write_text("97000")
    zones.add("skin-therm", "37000")
    assert zones.value() is None
    zones.now += 60
    assert zones.value() == 37


def test_a_zone_that_comes_later_is_found(zones: Zones) -> None:
    assert zones.skin.read().absent
    zones.add("skin-therm", "37000")
    assert zones.skin.read().absent
    zones.now += 900
    assert zones.value() == 37


def test_a_zone_is_searched_for_seldom(zones: Zones, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refused open may be a line in the system's log."""
    zones.add("skin-therm", "37000")
    zones.value()
    opened = []
    real = Path.open

    def counted(path: Path, *arguments: object, **named: object) -> object:
        opened.append(path)
        return real(path, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counted)
    zones.now += 30
    assert zones.value() == 37
    assert len(opened) == 2
