"""Schema 3: nights, the pause of all training, and what a run remembers of kills and crashes."""

from sqlalchemy import Connection

from storage.schemas.rebuild import rebuild


def migrate(connection: Connection) -> None:
    """Bring a file of schema 2 here.

    Every run of schema 2 was asked for. Adapters get the nightly training that new ones have.
    """
    rebuild(
        connection,
        3,
        {
            "adapters": {"night": "'{}'"},
            "runs": {
                "origin": "'request'",
                "in_window": "0",
                "override": "0",
                "kills": "0",
                "crashes": "0",
                "halvings": "0",
                "worked_at": "started_at",
            },
        },
    )
