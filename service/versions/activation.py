"""Activating and deactivating a version: the client's own decision, and on record as such."""

from sqlmodel import Session

from service.home import Home
from service.models import ModelFolder
from service.runs.base_model import base_model_problem
from service.versions.files import are_gone
from storage import history, versions
from storage.tables import Adapter, Version

GONE = "the files of this version are gone from the home folder"


class ActivationError(Exception):
    """The version can't become active; the message says why and what to do."""


class GoneError(ActivationError):
    """Its files are gone."""


def check_usable(home: Home, models: ModelFolder, adapter: Adapter, version: Version) -> None:
    """Refuse a version that predictions couldn't be made with, nor a run begin with.

    Raises:
        GoneError: its files are gone.
        ActivationError: it or the installed model is of another base.
    """
    found = version.manifest["base_hash"]
    if found != adapter.base_hash:
        raise ActivationError(
            f"expected a version on the base model {adapter.base_hash}, found one on {found}; "
            "use a version of this adapter's own base, or create an adapter on that one"
        )
    problem = base_model_problem(models, adapter.base_model, adapter.base_hash)
    if problem is not None:
        raise ActivationError(problem)
    if are_gone(home, version):
        raise GoneError(
            f"{GONE}; use another version (GET the adapter's /versions lists them), or train again"
        )


def activate(session: Session, adapter: Adapter, version: Version, by: str) -> None:
    """Make it the adapter's active version, as ``by`` decided; nothing if it is so already."""
    if version.active:
        return
    before = versions.active(session, adapter.id)
    versions.activate(session, version, by=by)
    session.flush()
    words = f"version {version.number} was activated by {by}"
    if before is not None:
        words += f" in place of version {before.number}"
    if version.verdict != "promoted":
        words += f", although it is {version.verdict}: {version.verdict_reason}"
    _note(session, adapter, version, "version-activated", words)


def deactivate(session: Session, adapter: Adapter, version: Version, by: str) -> None:
    """Let no version be active, as ``by`` decided; nothing if this one isn't."""
    if not version.active:
        return
    versions.deactivate(session, version)
    words = f"version {version.number} was deactivated by {by}, and none is active now"
    _note(session, adapter, version, "version-deactivated", words)


def _note(session: Session, adapter: Adapter, version: Version, kind: str, words: str) -> None:
    history.add(session, kind, words, adapter.client_id, adapter.name, version.run_id)
