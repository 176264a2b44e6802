"""Taking an imported version's folder into the database.

`trainer.import_peft`, a child of this daemon, writes the folder whole or not at all, and checks all
that is in it first. As with a run's version the folder is the truth: one that has no row, because
the daemon was killed in between, is taken in at the next start.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from api_schemas.versions import Imported, Metrics
from service.home import Home
from service.versions.files import FilesError, check_whole, read_manifest
from service.versions.keeping import keep_newest
from storage import adapters, history, versions
from storage.tables import Version

_REASON = "it was imported and has not been measured; only you can activate it"


class ImportManifest(BaseModel):
    """What the daemon relies on in an imported version's version.json."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    manifest_version: Literal[1]
    run_id: None
    adapter_id: int
    base_hash: str
    metrics: Metrics
    imported: Imported
    files: dict[str, str] = Field(min_length=1)


def read_import(home: Home, path: str) -> ImportManifest:
    """The manifest of the imported version at ``path`` (relative to the home), all files checked.

    Raises:
        FilesError: it isn't a whole imported version of the adapter whose folder it is in.
    """
    folder = home.path / path
    manifest, _ = read_manifest(folder, ImportManifest)
    if not path.startswith(f"adapters/{manifest.adapter_id}/"):
        raise FilesError(f"its manifest says adapter {manifest.adapter_id}")
    check_whole(folder, manifest.files)
    return manifest


def adopt_import(
    session: Session, home: Home, path: str, manifest: ImportManifest
) -> Version | None:
    """Make a row of the imported version at ``path``, in the writer's ``session``.

    One that has a row already is left as it is. None: its adapter is gone.

    Raises:
        FilesError: it is of another base than its adapter.
    """
    known = versions.at_path(session, path)
    if known is not None:
        return known
    adapter = adapters.by_id(session, manifest.adapter_id)
    if adapter is None:
        return None
    if manifest.base_hash != adapter.base_hash:
        raise FilesError(
            f"expected the base model {adapter.base_hash}, found {manifest.base_hash}; import it "
            "again, into an adapter on that base"
        )
    version = versions.add(
        session,
        Version(
            adapter_id=adapter.id,
            path=path,
            metrics=manifest.metrics.model_dump(),
            manifest=manifest.model_dump(exclude={"metrics", "holdout_rows"}),
            verdict="imported",
            verdict_reason=_REASON,
            seen=[],
        ),
    )
    words = f"version {version.number} imported: {_REASON}"
    history.add(session, "version-imported", words, adapter.client_id, adapter.name)
    keep_newest(home, session, adapter)
    return version
