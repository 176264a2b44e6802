"""runs/<id>/spec.json: everything that decides a run's numbers, frozen when the run is created."""

import json
from collections.abc import Sequence
from typing import Any

from api_schemas.training import TrainingOptions
from service.durable import sync_folder, write_durably
from service.home import Home
from service.settings import Settings
from storage.tables import Adapter, Run, Version

SPEC_NAME = "spec.json"
SPEC_VERSION = 1

_HOW_TO_WORK = {
    "checkpoint_every_steps": 10,
    "checkpoint_every_seconds": 120,
}


class SpecError(Exception):
    """A run's spec can't be read; the message says why."""


def write_spec(
    home: Home,
    settings: Settings,
    run: Run,
    adapter: Adapter,
    client: str,
    training: TrainingOptions,
    train_ids: Sequence[int],
    holdout_ids: Sequence[int],
    active: Version | None,
    start: Version | None,
) -> None:
    """Write the spec of a new run; it is on the disk when this returns.

    It is compared with the version ``active``, and begins with the adapter of ``start``.
    """
    spec = {
        "spec_version": SPEC_VERSION,
        "run_id": run.id,
        "adapter_id": adapter.id,
        "adapter": adapter.name,
        "client": client,
        "method": adapter.method,
        "model": {"name": adapter.base_model, "base_hash": adapter.base_hash},
        "rank": adapter.rank,
        "alpha": adapter.alpha,
        "targets": adapter.targets,
        "use_rslora": adapter.use_rslora,
        "top_layers": adapter.top_layers,
        "prefix_cache_mb": settings.prefix_cache_mb,
        "labels": adapter.labels,
        "max_tokens": adapter.max_tokens,
        "too_long": adapter.too_long,
        "train_example_ids": list(train_ids),
        "holdout_example_ids": list(holdout_ids),
        "active_version": None if active is None else active.path,
        "warm_start": None if start is None else {"version": start.number, "path": start.path},
        "training": training.model_dump() | _HOW_TO_WORK,
        **settings.engine_options,
        "memory_mb": settings.memory_mb,
    }
    folder = home.run(run.id)
    folder.mkdir(mode=0o700, exist_ok=True)
    write_durably(folder / SPEC_NAME, json.dumps(spec, ensure_ascii=False, indent=1).encode())
    sync_folder(home.runs)


def read_spec(home: Home, run_id: int) -> dict[str, Any]:
    """The spec of a run.

    Raises:
        SpecError: it is missing or damaged.
    """
    path = home.run(run_id) / SPEC_NAME
    try:
        spec: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SpecError(f"the spec of run {run_id} can't be read: {error}") from None
    return spec
