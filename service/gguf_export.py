"""A version as a GGUF LoRA: the file in its folder, or made anew where there is none."""

import errno
import logging
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from service.door.problems import Refusal, not_now

GGUF_FILE = "adapter.gguf"
_PEFT_TENSORS = "adapter_model.safetensors"
_REFUSED, _DISK_FULL = 65, 74  # trainer/export/gguf.py
_SECONDS = 120
_RETRY_SECONDS = 60
_one_at_a_time = threading.Lock()

_log = logging.getLogger("lorad.gguf")


def gguf_file(home: Path, version: str) -> IO[bytes]:
    """The file of the version in the folder ``home / version``, open at its start.

    What is made anew lies in an unlinked file in the home, and is gone when that is closed.

    Raises:
        FileNotFoundError: the version's files are gone.
        Refusal: 409, GGUF can't express it, or its base model isn't there any more; 503, the
            process that makes it failed.
        OSError: a file can't be read, or there is no room.
    """
    folder = home / version
    try:
        return (folder / GGUF_FILE).open("rb")
    except FileNotFoundError:
        (folder / _PEFT_TENSORS).stat()
    target: IO[bytes] = tempfile.TemporaryFile(dir=home)  # noqa: SIM115 - the caller closes it
    try:
        _make(home, version, target)
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def _make(home: Path, version: str, target: IO[bytes]) -> None:
    command = [sys.executable, "-P", "-m", "trainer.export.gguf"]
    command += ["--home", str(home), "--version", version]
    try:
        with _one_at_a_time:
            child = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.PIPE,
                timeout=_SECONDS,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise _failed(f"took longer than {_SECONDS} seconds") from None
    if child.returncode == 0:
        return
    said = child.stderr.decode("utf-8", "replace").strip()
    if child.returncode == _REFUSED:
        raise Refusal(409, said)
    if child.returncode == _DISK_FULL:
        raise OSError(errno.ENOSPC, "no space left for the GGUF file")
    _log.error("python -m trainer.export.gguf ended with %d: %s", child.returncode, said)
    raise _failed(f"ended with {child.returncode}")


def _failed(what: str) -> Refusal:
    return not_now(
        f"expected the process that makes the GGUF file to write it, but it {what}; try again, or "
        "take format=peft",
        _RETRY_SECONDS,
    )
