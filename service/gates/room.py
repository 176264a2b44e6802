"""The gates of room: storage and memory."""

from abc import abstractmethod

from service.gates.gate import Finding, Gate
from service.gates.limits import Limits
from service.gates.verdict import GateName
from service.sensors.readings import Reading, Readings

_MIB = 1024 * 1024


class Room(Gate[int]):
    """Opens with ``start`` bytes free, closes below ``floor`` while something trains.

    Nobody passes: what is written or allocated without room fails, and takes others with it.
    """

    unit = "bytes"
    plausible = (0, 2**63)
    what: str

    def __init__(self, limits: Limits) -> None:
        """See `Gate`."""
        super().__init__(limits)
        self._start, self._floor = self.start_and_floor(limits)

    @staticmethod
    @abstractmethod
    def start_and_floor(limits: Limits) -> tuple[int, int]:
        """Those of the limits that are this gate's."""

    def judge(self, value: int, readings: Readings, now: float, *, holding: bool) -> Finding:
        """Never passable."""
        limit, opens = self.to_open(now)
        found = f"{value // _MIB} MiB {self.what}"
        if holding:
            limit = self._floor
            if value < limit:
                found += f", below the floor of {limit // _MIB} MiB"
        return Finding(value >= limit, limit, found, opens)

    def to_open(self, now: float) -> tuple[int, str]:
        """What must be free to start."""
        return self._start, f"training starts with {self._start // _MIB} MiB"


class Storage(Room):
    """Of the file system of the home."""

    name: GateName = "storage"
    subject = "the free storage"
    what = "of storage are free where lorad keeps its files"

    @staticmethod
    def start_and_floor(limits: Limits) -> tuple[int, int]:
        """The storage's."""
        return limits.storage_start_bytes, limits.storage_floor_bytes

    def reading_of(self, readings: Readings) -> Reading[int]:
        """Bytes free."""
        return readings.storage


class Memory(Room):
    """Of the device."""

    name: GateName = "memory"
    subject = "the available memory"
    what = "of memory are available"

    @staticmethod
    def start_and_floor(limits: Limits) -> tuple[int, int]:
        """The memory's."""
        return limits.memory_start_bytes, limits.memory_floor_bytes

    def reading_of(self, readings: Readings) -> Reading[int]:
        """Bytes that can be had without swapping."""
        return readings.memory
