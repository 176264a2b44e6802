"""The time zone that the device shows its clock in, which a journey changes."""

import logging
import os
import shutil
import threading
import time
from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from service.boot_clock import boot_seconds
from service.bounded_program import BoundedProgram, ProgramError

_FRESH_SECONDS = 240.0
"""Less than five minutes by more than the 30 s between two looks at the schedule."""

_PROPERTY = "persist.sys.timezone"
_getprop = BoundedProgram(seconds=2.0, most_bytes=4096)

_log = logging.getLogger("lorad.zone")
_guard = threading.Lock()
_found: tuple[float, tzinfo] | None = None
_complaint: str | None = None


def local_zone() -> tzinfo:
    """The zone, at most four minutes old. Where none can be found out: the clock's own offset."""
    global _found
    with _guard:
        now = boot_seconds()
        if _found is None or now - _found[0] >= _FRESH_SECONDS:
            _found = now, _look(None if _found is None else _found[1])
        return _found[1]


def _look(before: tzinfo | None) -> tzinfo:
    global _complaint
    time.tzset()  # the C library too goes on with the zone of its start
    try:
        zone = _named_zone()
        complaint = None
    except Exception as error:  # tzlocal reads a dozen formats, and may raise whatever it likes
        zone = timezone(timedelta(seconds=time.localtime().tm_gmtoff))
        words = error.args[0] if isinstance(error, KeyError) and error.args else error
        complaint = " ".join(str(words).split())
    if complaint is not None and complaint != _complaint:
        _log.warning(
            "the name of the local time zone was not found (%s); the schedule follows the present "
            "offset of the clock, %s",
            complaint,
            zone,
        )
    elif complaint is None and str(zone) != str(before):
        _log.info("the schedule is in the time zone %s", zone)
    _complaint = complaint
    return zone


def _named_zone() -> tzinfo:
    getprop = shutil.which("getprop") or shutil.which("/system/bin/getprop")
    if getprop is None or os.environ.get("TZ"):
        import tzlocal  # here, because Android doesn't need it

        return tzlocal.reload_localzone()
    # tzlocal calls it too, twice, and waits for ever.
    try:
        name = _getprop.output([getprop, _PROPERTY]).decode().strip()
    except ProgramError as error:
        raise ProgramError(f"getprop {error}") from None
    if not name:
        raise ProgramError(f"getprop says nothing of {_PROPERTY}")
    return ZoneInfo(name)
