"""What columns are made of: JSON values, and the CHECKs that hold whatever the code does."""

import json
from typing import Any

from sqlalchemy import CheckConstraint, Dialect, Text
from sqlalchemy.types import TypeDecorator


class Json(TypeDecorator[Any]):
    """A JSON value as compact text; ``None`` is SQL NULL; NaN and infinities are refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The text to store."""
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value that was stored."""
        return None if value is None else json.loads(value)


def check(name: str, condition: str) -> CheckConstraint:
    """A CHECK by its name."""
    return CheckConstraint(condition, name=name)


def is_text(column: str, most: int, *, optional: bool = False) -> CheckConstraint:
    """1 to ``most`` characters without NUL."""
    # length() stops at a NUL, so NUL is refused on its own.
    rule = (
        f"typeof({column}) = 'text' AND length({column}) BETWEEN 1 AND {most} "
        f"AND instr({column}, char(0)) = 0"
    )
    return check(f"{column}_is_text", f"{column} IS NULL OR ({rule})" if optional else rule)


def is_json(column: str, kind: str, *, optional: bool = False) -> CheckConstraint:
    """JSON whose outermost value is an ``array`` or ``object``."""
    rule = f"json_valid({column}) AND json_type({column}) = '{kind}'"
    return check(f"{column}_is_json", f"{column} IS NULL OR ({rule})" if optional else rule)


def is_one_of(column: str, *values: str) -> CheckConstraint:
    """One of these words."""
    return check(f"{column}_is_known", f"{column} IN ({', '.join(repr(v) for v in values)})")


def is_flag(column: str) -> CheckConstraint:
    """0 or 1."""
    # For NULL the condition is NULL, which a CHECK lets pass: NOT NULL guards where it must.
    return check(f"{column}_is_flag", f"{column} IN (0, 1)")


def is_time(column: str, *, optional: bool = False) -> CheckConstraint:
    """Milliseconds since 1970 UTC."""
    rule = f"typeof({column}) = 'integer' AND {column} > 0"
    return check(f"{column}_is_time", f"{column} IS NULL OR ({rule})" if optional else rule)


def is_count(column: str, least: int = 0, *, optional: bool = False) -> CheckConstraint:
    """A whole number of at least ``least``."""
    rule = f"typeof({column}) = 'integer' AND {column} >= {least}"
    return check(f"{column}_in_range", f"{column} IS NULL OR ({rule})" if optional else rule)


def is_blob(column: str, size: int, what: str, *, optional: bool = False) -> CheckConstraint:
    """Exactly ``size`` bytes."""
    rule = f"typeof({column}) = 'blob' AND length({column}) = {size}"
    return check(f"{column}_is_{what}", f"{column} IS NULL OR ({rule})" if optional else rule)
