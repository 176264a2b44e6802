"""Keeping the newest versions of an adapter: the others go by themselves.

The active one stays, however old, and so does one that an unfinished run has to do with.
"""

from sqlmodel import Session

from service.home import Home
from service.versions.needed import needed
from storage import versions
from storage.deletion import delete_version
from storage.tables import Adapter


def keep_newest(home: Home, session: Session, adapter: Adapter) -> int:
    """Delete what the adapter's ``keep_versions`` leaves out, in the writer's ``session``.

    The eraser removes the folders after the commit. Returns how many versions went.
    """
    keep = adapter.keep_versions
    if keep is None:
        return 0
    use = needed(home, session, adapter.id)
    paths = frozenset() if use is None else use.paths
    going = versions.beyond(session, adapter.id, keep, paths)
    for version in going:
        why = f": only the newest {keep} are kept" if keep > 1 else ": only the newest is kept"
        delete_version(session, adapter, version, why)
    return len(going)
