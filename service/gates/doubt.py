"""Why a reading can't be relied on. The sensors refuse nonsense already; gates don't trust that."""

from service.sensors.readings import Reading, Value


def doubt(
    reading: Reading[Value], now: float, most_age: float, plausible: tuple[float, float]
) -> str | None:
    """What makes the reading as good as none, in words; None where it can be relied on.

    Args:
        reading: the sensor's last word.
        now: `boot_seconds`, not earlier than the reading was taken.
        most_age: seconds for which a reading counts.
        plausible: the least and the greatest value that there can be.
    """
    said_by = reading.source or "a sensor"
    least, most = plausible
    if reading.value is None:
        return reading.why or f"{said_by} says nothing"
    if not least <= reading.value <= most:  # NaN is not, either
        return f"{said_by} says {reading.value:g}, which can't be"
    age = reading.age(now)
    if age is None:
        return f"{said_by} doesn't say when it was read"
    if not age >= 0:
        return f"by the clock {said_by} was read {-age:.0f} s in the future"
    if age > most_age:
        return f"{said_by} was read {age:.0f} s ago, and only {most_age:g} s count"
    return None
