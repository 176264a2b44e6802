"""Taking the labels out of version.json of versions that an earlier lorad made.

A version's folder holds its holdout row by row: scores, and ids by which the labels are found in
the database as long as the examples are there. Earlier lorads wrote the labels too, where no
deletion would find them.
"""

import json
import logging
from pathlib import Path
from typing import Any

from service.door import strict_json
from service.durable import write_durably
from service.home import Home
from service.versions.files import MANIFEST_NAME

_LABEL = "label"

_log = logging.getLogger("lorad.old_manifests")


def remove_labels(home: Home) -> int:
    """Rewrite, durably, each version.json that has labels of holdout rows; return how many had.

    Nothing else in them changes. One that can't be read or written stays; the log names it.
    """
    changed = 0
    for path in sorted(home.adapters.glob(f"[0-9]*/versions/run-[0-9]*/{MANIFEST_NAME}")):
        try:
            changed += _remove_labels(path)
        except (OSError, strict_json.JsonError) as error:
            where = path.relative_to(home.path).parent
            _log.error("%s may hold labels: %s", where, type(error).__name__)
    return changed


def _remove_labels(path: Path) -> bool:
    data = path.read_bytes()
    if f'"{_LABEL}"'.encode() not in data:
        return False
    manifest: Any = strict_json.loads(data)
    rows = manifest.get("holdout_rows") if isinstance(manifest, dict) else None
    found = False
    for row in rows if isinstance(rows, list) else ():
        found |= isinstance(row, dict) and row.pop(_LABEL, None) is not None
    if found:
        write_durably(path, json.dumps(manifest, ensure_ascii=False).encode())
    return found
