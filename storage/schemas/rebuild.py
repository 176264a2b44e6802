"""Changing a schema by making every table anew.

SQLite can add a column but can't change a CHECK, so a step to another schema makes the tables of
the new schema's file and moves the rows over: https://www.sqlite.org/lang_altertable.html#otheralter
"""

from collections.abc import Mapping
from importlib import resources

from sqlalchemy import Connection

_KEPT_BY_TRIGGERS = frozenset({"example_counts"})
"""Filled anew as the examples move over."""


def rebuild(connection: Connection, number: int, values: Mapping[str, Mapping[str, str]]) -> None:
    """Bring the file to the schema of ``{number}.sql``, with every row it had.

    ``values`` gives, by table and column, the SQL expression (over the old row) of what the old
    table doesn't hold under that name. Tables and columns that neither has get their defaults.
    Foreign keys must not be enforced meanwhile.
    """
    run = connection.exec_driver_sql
    sequences = {row.name: row.seq for row in run("SELECT name, seq FROM sqlite_sequence")}
    old_tables = (
        run("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .scalars()
        .all()
    )
    for kind in ("trigger", "index"):
        for name in (
            run(f"SELECT name FROM sqlite_master WHERE type = '{kind}' AND sql IS NOT NULL")
            .scalars()
            .all()
        ):
            run(f'DROP {kind} "{name}"')
    run("PRAGMA legacy_alter_table = ON")  # what refers to a table goes on referring to its name
    for table in old_tables:
        run(f'ALTER TABLE "{table}" RENAME TO "old_{table}"')
    for statement in schema_text(number).split(";\n\n"):
        if statement.strip():
            run(statement)
    for table in old_tables:
        if table in _KEPT_BY_TRIGGERS:
            run(f'DROP TABLE "old_{table}"')
            continue
        known = set(_columns(connection, f"old_{table}"))
        given = values.get(table, {})
        kept = [name for name in _columns(connection, table) if name in known or name in given]
        into = ", ".join(f'"{name}"' for name in kept)
        what = ", ".join(given.get(name, f'"{name}"') for name in kept)
        run(f'INSERT INTO "{table}" ({into}) SELECT {what} FROM "old_{table}"')
        run(f'DROP TABLE "old_{table}"')
    for table, highest in sequences.items():
        run("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, highest))
    run("PRAGMA legacy_alter_table = OFF")


def schema_text(number: int) -> str:
    """The SQL that makes an empty file of that schema."""
    return resources.files(__package__).joinpath(f"{number}.sql").read_text(encoding="utf-8")


def _columns(connection: Connection, table: str) -> list[str]:
    return [row[1] for row in connection.exec_driver_sql(f'PRAGMA table_info("{table}")')]
