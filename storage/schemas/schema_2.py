"""Schema 2: scoped clients with quotas, retention, run states, counters, and the ledgers."""

from sqlalchemy import Connection

from storage.schemas.rebuild import rebuild


def migrate(connection: Connection) -> None:
    """Bring a file of schema 1 here.

    Schema 1 had one client, the owner, who may do everything. Its versions' manifests repeated the
    holdout's labels, which are a person's text and no longer leave the table of examples.
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
                "manifest": _WITHOUT_LABELS,
            },
        },
    )


_WITHOUT_LABELS = """json_set(manifest, '$.holdout_rows', (
    SELECT json_group_array(json_remove(value, '$.label'))
    FROM json_each(manifest, '$.holdout_rows')))"""
