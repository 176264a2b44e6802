"""How many examples an adapter has, kept by the database itself.

Triggers on the table of examples keep one row for each (adapter, split, status), so a status costs
the same with a million examples as with ten, and no code path can forget to count.
"""

from sqlalchemy import DDL, Text, event
from sqlmodel import Field, SQLModel

from storage import columns
from storage.tables import Example, ExampleStatus, Split


class ExampleCount(SQLModel, table=True):
    """The number of an adapter's examples of one split and status, and their bytes of text."""

    __tablename__ = "example_counts"
    __table_args__ = (
        columns.is_count("examples"),
        columns.is_count("bytes"),
        {"sqlite_with_rowid": False},
    )

    adapter_id: int = Field(primary_key=True, foreign_key="adapters.id")
    split: Split = Field(primary_key=True, sa_type=Text)
    status: ExampleStatus = Field(primary_key=True, sa_type=Text)
    examples: int
    bytes: int


def _size(row: str) -> str:
    return " + ".join(
        f"coalesce(length(CAST({row}.{column} AS BLOB)), 0)" for column in ("input", "label")
    )


_COUNT_IN = f"""
    INSERT INTO example_counts (adapter_id, split, status, examples, bytes)
    VALUES (NEW.adapter_id, NEW.split, NEW.status, 1, {_size("NEW")})
    ON CONFLICT (adapter_id, split, status) DO UPDATE
    SET examples = examples + 1, bytes = bytes + excluded.bytes;"""

_COUNT_OUT = f"""
    UPDATE example_counts SET examples = examples - 1, bytes = bytes - ({_size("OLD")})
    WHERE adapter_id = OLD.adapter_id AND split = OLD.split AND status = OLD.status;"""

TRIGGERS = {
    "examples_counted_in": f"AFTER INSERT ON examples BEGIN{_COUNT_IN}\nEND",
    "examples_counted_out": f"AFTER DELETE ON examples BEGIN{_COUNT_OUT}\nEND",
    "examples_recounted": (
        "AFTER UPDATE OF adapter_id, split, status, input, label ON examples "
        f"BEGIN{_COUNT_OUT}{_COUNT_IN}\nEND"
    ),
}

for _name, _body in TRIGGERS.items():
    event.listen(
        Example.__table__,  # type: ignore[attr-defined]
        "after_create",
        DDL(f"CREATE TRIGGER {_name} {_body}"),  # type: ignore[no-untyped-call]
    )
