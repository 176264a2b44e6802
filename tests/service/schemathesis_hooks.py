"""How schemathesis sends bodies that aren't JSON: NDJSON, and what should be a zip file."""

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def ndjson(context: Any, value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@schemathesis.serializer("application/zip")
def zipped(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
