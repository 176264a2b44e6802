"""The battery and the chargers in a tree like the kernel's. A folder in a file's place is one that
can't be read: the tests may run as root, whom no permission bit stops."""

from pathlib import Path

import pytest

from service.sensors.power_supply import PowerSupply
from service.sensors.readings import Battery

BATTERY = {
    "type": "Battery",
    "status": "Charging",
    "health": "Good",
    "present": "1",
    "capacity": "64",
    "temp": "287",
    "voltage_now": "4012000",
}
USB = {"type": "USB", "online": "1"}
WIRELESS = {"type": "Wireless", "online": "0"}


class Tree:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.put("battery", **BATTERY)
        self.put("usb", **USB)
        self.put("wireless", **WIRELESS)

    def put(self, supply: str, **values: str | None) -> None:
        """Values by file; None: it's there but can't be read."""
        folder = self.folder / supply
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            self.gone(supply, name)
            if value is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_text(f"{value}\n")

    def gone(self, supply: str, name: str) -> None:
        file = self.folder / supply / name
        if file.is_dir():
            file.rmdir()
        file.unlink(missing_ok=True)

    def maybe(self) -> Battery | None:
        return PowerSupply(lambda: 5.0, self.folder).read()

    def battery(self) -> Battery:
        battery = self.maybe()
        assert battery is not None
        return battery


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "power_supply")


def test_what_it_tells_with_its_sources(tree: Tree) -> None:
    battery = tree.battery()
    found = {name: (reading.value, reading.source) for name, reading in vars(battery).items()}
    assert found == {
        "plugged": (True, "sysfs usb/online"),
        "full": (False, "sysfs battery/status"),
        "level": (64, "sysfs battery/capacity"),
        "battery_temperature": (28.7, "sysfs battery/temp"),
    }
    assert {reading.at for reading in vars(battery).values()} == {5.0}


@pytest.mark.parametrize("supply", ["usb", "wireless"])
@pytest.mark.parametrize("online", ["1", "2"])
def test_any_charger_that_is_online_is_plugged(tree: Tree, supply: str, online: str) -> None:
    tree.put("battery", status="Discharging")
    tree.put("usb", online="0")
    assert tree.battery().plugged.value is False
    tree.put(supply, online=online)
    assert tree.battery().plugged.value is True


def test_what_is_no_charger_is_not_plugged(tree: Tree) -> None:
    tree.put("usb", online="0")
    tree.put("bms", type="BMS", online="1")
    tree.put("battery", online="1", status="Discharging")
    assert tree.battery().plugged.value is False


def test_where_no_charger_can_be_read_the_battery_s_state_tells(tree: Tree) -> None:
    for supply in ("usb", "wireless"):
        tree.put(supply, online=None)
    expected = {"Charging": True, "Discharging": False, "Full": None, "Not charging": None}
    for state, plugged in expected.items():
        tree.put("battery", status=state)
        battery = tree.battery()
        assert battery.plugged.value is plugged
        assert (battery.plugged.why is None) == (plugged is not None)
        assert battery.full.value is {"Full": True, "Not charging": None}.get(state, False)


@pytest.mark.parametrize(
    ("state", "health", "online", "full"),
    [
        ("Full", "Good", "1", True),
        ("Not charging", "Good", "1", True),
        ("Not charging", "Overheat", "1", False),
        ("Not charging", "Good", "0", False),
        ("Discharging", "Good", "0", False),
        ("Unknown", "Good", "1", None),
        ("", "Good", "1", None),
        (None, "Good", "1", None),
    ],
)
def test_full(tree: Tree, state: str | None, health: str, online: str, full: bool | None) -> None:
    tree.put("battery", status=state, health=health)
    tree.put("usb", online=online)
    battery = tree.battery()
    assert battery.full.value is full
    assert (battery.full.why is None) == (full is not None)


@pytest.mark.parametrize("capacity", ["101", "-1", "", "64.5", "many", "9" * 400, "1_0", "\xb2"])
def test_an_absurd_level_is_unknown_alone(tree: Tree, capacity: str) -> None:
    tree.put("battery", capacity=capacity)
    battery = tree.battery()
    assert battery.level.value is None
    assert battery.level.why is not None
    assert "expected" in battery.level.why
    assert battery.plugged.value is True
    assert battery.battery_temperature.value == 28.7


@pytest.mark.parametrize(
    ("temp", "value"),
    [("-300", -30), ("0", 0), ("1000", 100), ("-301", None), ("1001", None), ("28700", None)],
)
def test_the_range_of_temperatures(tree: Tree, temp: str, value: float | None) -> None:
    tree.put("battery", temp=temp)
    found = tree.battery().battery_temperature
    assert found.value == value
    if value is None:
        assert found.why == f"expected -300 to 1000 (in 1/10 °C), found {temp}"


@pytest.mark.parametrize("name", ["capacity", "temp", "status"])
def test_a_file_that_cannot_be_read_is_named(tree: Tree, name: str) -> None:
    tree.put("battery", **{name: None})
    tree.put("usb", online="1")
    silent = [reading for reading in vars(tree.battery()).values() if reading.value is None]
    assert len(silent) == 1
    assert silent[0].why is not None
    assert f"battery/{name}" in silent[0].why


def test_a_folder_that_nobody_may_list_can_hold_files_that_one_may_read(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert tree.battery().level.value == 64
    assert tree.battery().plugged.source == "sysfs usb/online"


def test_one_that_charges_is_plugged_whatever_charger_can_be_read(tree: Tree) -> None:
    tree.put("usb", online=None)
    found = tree.battery().plugged
    assert (found.value, found.source) == (True, "sysfs battery/status")
    tree.put("battery", status="Discharging")
    found = tree.battery().plugged
    assert (found.value, found.source) == (False, "sysfs wireless/online")


def test_a_battery_without_a_thermometer_is_told_what_to_do(tree: Tree) -> None:
    tree.gone("battery", "temp")
    found = tree.battery().battery_temperature
    assert found.value is None
    assert found.why is not None
    assert "LORAD_SENSORS=fake" in found.why


def test_there_is_no_battery_where_nothing_can_be_read(tree: Tree, tmp_path: Path) -> None:
    assert PowerSupply(lambda: 5.0, tmp_path / "none").read() is None
    tree.put("battery", type=None)
    assert tree.maybe() is None
    tree.put("battery", type="Battery", capacity=None, status=None)
    assert tree.maybe() is None
    tree.put("battery", capacity="64", present="0")
    assert tree.maybe() is None


def test_the_battery_of_a_mouse_is_not_the_device_s(tree: Tree) -> None:
    tree.put("aa_mouse", type="Battery", scope="Device", status="Full", capacity="100")
    assert tree.battery().level.value == 64
    for name in BATTERY:
        tree.gone("battery", name)
    assert tree.maybe() is None
