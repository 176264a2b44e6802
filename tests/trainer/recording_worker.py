"""The real worker, with all that it does to its home recorded: `FILE SCRIPT --home HOME --run ID`.

FILE gets the pickled `tests.trainer.lossy_disk.Record` at the end; its marks are the events that
the worker has said, as JSON. SCRIPT is one of `tests.trainer.scripted_worker`, perhaps empty.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.trainer import scripted_worker
from tests.trainer.disk_recorder import recorded
from trainer import worker


def main() -> None:
    file = Path(sys.argv.pop(1))
    home = Path(sys.argv[sys.argv.index("--home") + 1])
    with recorded(home) as record:
        emit = worker.Protocol.emit

        def emit_and_mark(self: worker.Protocol, event: str, fields: Mapping[str, Any]) -> None:
            emit(self, event, fields)
            record.mark(json.dumps({"event": event, **fields}))

        worker.Protocol.emit = emit_and_mark  # type: ignore[method-assign]
        try:
            scripted_worker.main()
        finally:
            file.write_bytes(pickle.dumps(record))


if __name__ == "__main__":
    main()
