"""Schema 4: adapters in the top layers only."""

from sqlalchemy import Connection

from storage.schemas.rebuild import rebuild


def migrate(connection: Connection) -> None:
    """Bring a file of schema 3 here. The adapters that it has are in all layers."""
    rebuild(connection, 4, {})
