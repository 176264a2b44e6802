"""Schema 5: versions that are activated by hand, imported, and kept up to a number."""

from sqlalchemy import Connection

from storage.schemas.rebuild import rebuild

_LAST_VERSION = """max(
    (SELECT coalesce(max(number), 0) FROM old_versions AS v WHERE v.adapter_id = old_adapters.id),
    (SELECT count(*) FROM old_runs AS r
     WHERE r.adapter_id = old_adapters.id AND r.status = 'completed')
)"""


def migrate(connection: Connection) -> None:
    """Bring a file of schema 4 here.

    Each completed run of schema 4 had a version, which may be deleted since; its number isn't given
    again. A version was activated when it was promoted and in no other way. The adapters keep all
    their versions, as before, until somebody bounds them.
    """
    rebuild(
        connection,
        5,
        {
            "adapters": {"last_version": _LAST_VERSION},
            "versions": {"activated_at": "CASE WHEN verdict = 'promoted' THEN created_at END"},
        },
    )
