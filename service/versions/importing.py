"""Importing an adapter that PEFT wrote: a child looks at what it is, and writes the version."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from typing import IO, Any

from service.door.problems import Refusal, not_now
from service.home import Home
from storage.tables import Adapter

_SECONDS = 120
_SOON_SECONDS = 5
_one_at_a_time = threading.Lock()

_log = logging.getLogger("lorad.import")


def import_path(adapter_id: int, sha256: str) -> str:
    """Where a version lies that is imported from the zip file of this hash, relative to the home.

    So the same file is one version, however often it is sent.
    """
    return f"adapters/{adapter_id}/versions/import-{sha256[:32]}"


def import_version(home: Home, adapter: Adapter, path: str, archive: IO[bytes]) -> None:
    """Have the zip file checked, and the version's folder written at ``path``.

    Raises:
        Refusal: 422 it is no adapter that we can use, 409 it is one of another base or of other
            settings, 503 another import is under way, or the child failed.
        OSError: the disk refuses.
    """
    described = {
        "id": adapter.id,
        "base_model": adapter.base_model,
        "base_hash": adapter.base_hash,
        "rank": adapter.rank,
        "alpha": adapter.alpha,
        "targets": adapter.targets,
        "use_rslora": adapter.use_rslora,
        "top_layers": adapter.top_layers,
    }
    if not _one_at_a_time.acquire(blocking=False):
        raise not_now("another adapter is being imported; send it again", _SOON_SECONDS)
    try:
        said = _run(home, path, json.dumps(described), archive)
    finally:
        _one_at_a_time.release()
    if said.get("event") == "imported":
        return
    if said.get("event") == "refused":
        raise Refusal(said["status"], said["error"])
    if said.get("event") == "failed" and said.get("errno") in (errno.ENOSPC, errno.EDQUOT):
        raise OSError(said["errno"], os.strerror(said["errno"]))
    raise not_now("the process that imports failed; send it again", _SOON_SECONDS)


def _run(home: Home, path: str, adapter: str, archive: IO[bytes]) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "trainer.import_peft", "--home", str(home.path)]
    command += ["--path", path, "--adapter", adapter]
    try:
        child = subprocess.run(
            command, stdin=archive, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise not_now(f"importing took longer than {_SECONDS} seconds", _SOON_SECONDS) from None
    try:
        said: Any = json.loads(child.stdout)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        error = child.stderr.decode("utf-8", "replace").strip()
        _log.error("python -m trainer.import_peft ended with %d: %s", child.returncode, error)
        return {}
    return said
