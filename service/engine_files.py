"""HOME/engine/: what the daemon, the workers and the doctor tell each other about the NPU's engine.

    in-use.json      the worker's mark: it is about to use, or uses, an engine of the NPU
    demotions.json   the engines that aren't opened any more on this device, each with its cause
    doctor.json      the verdict of the self-tests

The other side is in `npu/`. An unreadable file says nothing, and the log says so, once; of a list
only the entries that can be read count.
"""

import json
import logging
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from service.door import strict_json
from service.durable import sync_folder, write_durably

MOST_BYTES = 1_000_000
"""A file that is larger is none of ours."""
MOST_ENTRIES = 200
"""Entries of a list that are read, and demotions that are kept: the newest."""
MOST_TEXT = 1000
"""Characters of a text; longer ones are cut."""

_log = logging.getLogger("lorad.engine")

Text = Annotated[str, AfterValidator(lambda text: text[:MOST_TEXT])]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class Mark(_Entry):
    """An engine of the NPU in use by the worker ``pid`` of run ``run``."""

    engine: Text
    form: Text | None = None
    phase: Text | None = None
    run: Count
    pid: Count
    fingerprint: Text


class Demotion(_Entry):
    """An engine that isn't opened any more on the device of this fingerprint.

    ``cause`` is a sentence that names no run, since whoever may see the engine may see it.
    ``at``: ISO 8601, UTC.
    """

    engine: Text
    fingerprint: Text
    cause: Text
    phase: Text | None = None
    run: Count | None = None
    step: Count | None = None
    at: Text | None = None

    @property
    def what(self) -> tuple[str, str]:
        """What is demoted: the engine, on which device."""
        return self.engine, self.fingerprint


class Check(_Entry):
    """One self-test, and what to do if it failed."""

    name: Text
    engine: Text | None = None
    form: Text | None = None
    passed: bool
    cause: Text | None = None
    remedy: Text | None = None
    seconds: float | None = None
    device: Text | None = None
    soc: Text | None = None


class LibraryPath(_Entry):
    """How a process is to look for the user's libraries: folders, the first wins."""

    name: Text
    loader: tuple[str, ...]
    dsp: tuple[str, ...]


class Verdict(_Entry):
    """The doctor's: which engine is to be used, and why."""

    fingerprint: Text
    at: Text | None = None
    checks: tuple[Check, ...] = ()
    engine: Text
    form: Text | None = None
    why: Text
    library_path: LibraryPath | None = None


_E = TypeVar("_E", bound=_Entry)


class EngineFiles:
    """The folder ``engine`` of a home. What it holds is read anew each time."""

    def __init__(self, folder: Path) -> None:
        """Bind to the folder, which need not be there."""
        self._folder = folder
        self._complained: dict[str, tuple[int, int]] = {}

    def mark(self) -> Mark | None:
        """The mark, whoever left it."""
        value = self._read(_MARK)
        return None if value is None else self._entry(_MARK, Mark, value)

    def mark_stamp(self) -> tuple[int, int] | None:
        """What tells one writing of the mark from another; None: there is none."""
        return self._stamp(_MARK)

    def remove_mark(self) -> None:
        """Take the mark away, durably.

        Raises:
            OSError: it can't be.
        """
        (self._folder / _MARK).unlink(missing_ok=True)
        sync_folder(self._folder)

    def demotions(self) -> list[Demotion]:
        """All demotions, the oldest first; also those of a device that this one was once."""
        found = (self._entry(_DEMOTIONS, Demotion, value) for value in self._raw_demotions())
        return [demotion for demotion in found if demotion is not None]

    def demote(self, demotion: Demotion) -> bool:
        """Add a demotion, durably; False if the engine is demoted on that device already.

        Raises:
            OSError: it can't be written; what was there before stays.
        """
        if demotion.what in {known.what for known in self.demotions()}:
            return False
        kept = [*self._raw_demotions(), demotion.model_dump()][-MOST_ENTRIES:]
        data = json.dumps({"demotions": kept}, ensure_ascii=False, indent=1).encode()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(self._folder / _DEMOTIONS, data)
        sync_folder(self._folder.parent)
        return True

    def verdict(self) -> Verdict | None:
        """What the doctor has found, however long ago."""
        value = self._read(_VERDICT)
        if isinstance(value, dict) and isinstance(checks := value.get("checks"), list):
            read = (self._entry(_VERDICT, Check, check) for check in checks[:MOST_ENTRIES])
            value = value | {"checks": [check for check in read if check is not None]}
        return None if value is None else self._entry(_VERDICT, Verdict, value)

    def _raw_demotions(self) -> list[Any]:
        value = self._read(_DEMOTIONS)
        listed = value.get("demotions") if isinstance(value, dict) else None
        if isinstance(listed, list):
            return listed[-MOST_ENTRIES:]
        if value is not None:
            self._complain(_DEMOTIONS, "expected an object with a list 'demotions'")
        return []

    def _read(self, name: str) -> Any:
        try:
            with (self._folder / name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise strict_json.JsonError(f"it is larger than {MOST_BYTES} bytes")
            return strict_json.loads(data)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(name, error.strerror or str(error))
        except strict_json.JsonError as error:
            self._complain(name, str(error))
        return None

    def _entry(self, name: str, kind: type[_E], value: Any) -> _E | None:
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            self._complain(name, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
            return None

    def _complain(self, name: str, why: str) -> None:
        stamp = self._stamp(name) or (0, 0)
        if self._complained.get(name) != stamp:
            self._complained[name] = stamp
            _log.warning("%s can't be read and says nothing: %s", self._folder / name, why)

    def _stamp(self, name: str) -> tuple[int, int] | None:
        try:
            found = (self._folder / name).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


_MARK, _DEMOTIONS, _VERDICT = "in-use.json", "demotions.json", "doctor.json"
