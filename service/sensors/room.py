"""The storage and the memory that are free, as readings."""

from pathlib import Path

from service import device
from service.sensors.readings import Reading


def storage(folder: Path, at: float) -> Reading[int]:
    """Bytes that this user may still write to the file system that holds the folder."""
    free = device.storage(folder).free_bytes
    why = f"the system doesn't say how much room there is for {folder}" if free is None else None
    return Reading(free, "statvfs", at, why)


def memory(at: float, source: Path = device.MEMORY) -> Reading[int]:
    """Bytes that can be had without swapping, as Linux estimates it."""
    free = device.memory(source).free_bytes
    why = f"{source} has no line MemAvailable that can be read" if free is None else None
    return Reading(free, str(source), at, why)
