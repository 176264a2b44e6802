"""Schema 2: scoped clients with quotas, retention, run states, counters, and the ledgers."""

from sqlalchemy import Connection

from storage.schemas.rebuild import rebuild


def migrate(connection: Connection) -> None:
    """Bring a file of schema 1 here.

    Schema 1 had one client, the owner, who may do everything. Its versions' manifests repeated the
    holdout row by row, with labels; the rows lie in version.json, and a label is a person's text,
    which no longer leaves the table of examples.
    """
    rebuild(
        connection,
        2,
        {
            "clients": {
                "key_id": "lower(hex(randomblob(16)))",
                "key": "randomblob(32)",
                "scopes": "'[\"admin\"]'",
                "paired_at": "created_at",
            },
            "adapters": {"revision": "1"},
            "runs": {"forgotten": "0"},
            "versions": {
                "seen_deleted": "0",
                "manifest": "json_remove(manifest, '$.holdout_rows')",
            },
        },
    )
