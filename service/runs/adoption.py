"""Taking a finished version folder into the database.

The folder, written whole or not at all by the worker, is the truth. So the same function serves
when the worker announces a version and when the daemon, at its start, finds one without a row
because it was killed in between.
"""

import logging
import shutil
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from api_schemas.versions import EngineSwitch, Metrics
from service.home import Home
from service.runs.run_log import note, note_words
from service.runs.run_spec import SpecError, read_spec
from service.runs.verdict import judge
from service.versions.files import FilesError, active_to_beat, check_whole, read_manifest
from service.versions.imported import adopt_import, read_import
from service.versions.keeping import keep_newest
from storage import adapters, erasures, examples, runs, versions
from storage.clock import now_ms
from storage.database import Database
from storage.id_ranges import ranges
from storage.tables import Run, Version

_NOBODY_WANTS = {
    "cancelled": "its run was cancelled before it was found",
    "completed": "it has been deleted",  # a run is completed in the transaction of its version
}

_log = logging.getLogger("lorad.adoption")


class AdoptionError(Exception):
    """A version folder can't be taken in; the message says why."""


class UnwantedError(AdoptionError):
    """The version's run was cancelled, or the version itself deleted."""


class Forgotten(BaseModel):
    """An example that the run went on without, after ``from_step`` steps."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    example_id: int
    from_step: int = Field(ge=0)


class VersionManifest(BaseModel):
    """What the daemon relies on in version.json."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    manifest_version: Literal[1]
    run_id: int
    adapter_id: int
    base_hash: str
    steps: int = Field(ge=1)  # an adapter that nothing was trained into is no version
    exact_resume: bool
    exact_resume_reason: str | None
    metrics: Metrics
    holdout_rows: list[dict[str, Any]]
    engine: dict[str, Any]
    engine_switches: list[EngineSwitch] = []
    skipped_example_ids: list[int]
    forgotten: list[Forgotten] = []
    files: dict[str, str] = Field(min_length=1)


def adopt(database: Database, home: Home, path: str) -> Version:
    """Make a row of the version at ``path`` (relative to the home), judge it, finish its run.

    In one transaction: the version, its verdict, the switch of the active version, the training
    examples marked as used, the run completed, whatever was wanted of it, and older versions
    deleted that are no longer kept. A version that has a row already is left as it is.

    Raises:
        AdoptionError: the folder isn't a whole version of a known run.
    """
    manifest, raw = _read(home, path)
    spec = _spec_of(home, manifest.run_id)
    used, seen = _examples_of(spec, manifest)
    with database.write() as session:
        run = runs.by_id(session, manifest.run_id)
        adapter = adapters.by_id(session, manifest.adapter_id)
        if run is None or adapter is None or run.adapter_id != adapter.id:
            raise AdoptionError(f"{path}: the database has no run {manifest.run_id} of its adapter")
        known = versions.of_run(session, run.id)
        if known is not None:
            return known
        if run.status in _NOBODY_WANTS:
            raise UnwantedError(f"{path}: {_NOBODY_WANTS[run.status]}")
        active = active_to_beat(home, session, adapter.id)
        metrics = manifest.metrics
        if active is not None and spec is not None and spec.get("active_version") != active.path:
            metrics = metrics.model_copy(update={"active": None})  # of another one
        judgement = judge(
            metrics, has_labels=adapter.labels is not None, has_active=active is not None
        )
        version = versions.add(
            session,
            Version(
                adapter_id=adapter.id,
                run_id=run.id,
                path=path,
                metrics=raw["metrics"],
                manifest=_without_rows(raw),
                verdict=judgement.verdict,
                verdict_reason=judgement.reason,
                active=judgement.verdict == "promoted",
                seen=None if seen is None else ranges(seen),
                seen_deleted=0 if seen is None else _gone(session, seen),
            ),
        )
        _complete(run, manifest)
        session.add(run)
        examples.mark_used(session, used, unchanged_since=run.created_at)
        note(session, run)
        words = f"version {version.number} {judgement.verdict}: {judgement.reason}"
        note_words(session, run, f"version-{judgement.verdict}", words)
        keep_newest(home, session, adapter)
    _log.info(
        "run %d: version %d of adapter %d: %s",
        run.id,
        version.number,
        adapter.id,
        judgement.verdict,
    )
    return version


def adopt_orphans(database: Database, home: Home) -> None:
    """Take in every whole version folder that has no row; the log names those that aren't whole.

    The folder of a deleted version is removed, and one that a worker finished although its run was
    cancelled meanwhile, or that was imported for an adapter that is gone.
    """
    with database.read() as session:
        known = versions.paths(session)
        for erasure in erasures.pending(session):
            known.update(erasure.paths)  # the eraser couldn't remove them yet
    for folder in sorted(home.adapters.glob("[0-9]*/versions/*-[0-9a-f]*")):
        path = folder.relative_to(home.path).as_posix()
        if folder.name.startswith(".") or path in known:
            continue
        try:
            if folder.name.startswith("import-"):
                _adopt_import(database, home, path)
            else:
                adopt(database, home, path)
        except UnwantedError as error:
            _log.info("removed: %s", error)
            shutil.rmtree(folder, ignore_errors=True)
        except AdoptionError as error:
            _log.warning("not adopted: %s", error)


def _adopt_import(database: Database, home: Home, path: str) -> None:
    try:
        manifest = read_import(home, path)
        with database.write() as session:
            if adopt_import(session, home, path, manifest) is None:
                raise UnwantedError(f"{path}: its adapter is gone")
    except FilesError as error:
        raise AdoptionError(f"{path}: {error}") from None


def _read(home: Home, path: str) -> tuple[VersionManifest, dict[str, Any]]:
    folder = home.path / path
    try:
        manifest, raw = read_manifest(folder, VersionManifest)
        if path != home.version_path(manifest.adapter_id, manifest.run_id):
            raise FilesError(
                f"its manifest says run {manifest.run_id} of adapter {manifest.adapter_id}"
            )
        check_whole(folder, manifest.files)
    except FilesError as error:
        raise AdoptionError(f"{path}: {error}") from None
    return manifest, raw


def _without_rows(manifest: dict[str, Any]) -> dict[str, Any]:
    # They stay in the folder: a status, which reads the row, costs the same however many they are.
    return {key: value for key, value in manifest.items() if key != "holdout_rows"}


def _complete(run: Run, manifest: VersionManifest) -> None:
    run.status, run.wanted, run.phase, run.error = "completed", None, None, None
    run.step = manifest.steps
    run.forgotten = len(manifest.skipped_example_ids)
    run.engine = manifest.engine
    run.exact_resume = manifest.exact_resume
    run.exact_resume_reason = manifest.exact_resume_reason
    run.finished_at = now_ms()


def _spec_of(home: Home, run_id: int) -> dict[str, Any] | None:
    try:
        return read_spec(home, run_id)
    except SpecError as error:
        _log.warning("no example is marked as used: %s", error)
        return None


def _examples_of(
    spec: dict[str, Any] | None, manifest: VersionManifest
) -> tuple[list[int], list[int] | None]:
    """The ids it was trained on to the end, and those it has seen; None: they aren't known.

    An example that the run forgot after its first step has left its traces in the weights.
    """
    if spec is None:
        return [], None
    skipped = set(manifest.skipped_example_ids)
    never = skipped - {one.example_id for one in manifest.forgotten if one.from_step > 0}
    train, holdout = spec["train_example_ids"], spec["holdout_example_ids"]
    used = [one for one in train if one not in skipped]
    return used, [one for one in [*train, *holdout] if one not in never]


def _gone(session: Session, seen: list[int]) -> int:
    return len(seen) - len(examples.existing(session, seen))
