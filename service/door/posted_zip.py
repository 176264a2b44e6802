"""What a request hands in as a zip file: on the disk, in a file without a name."""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import IO, Annotated

from anyio.to_thread import run_sync
from fastapi import Depends, Request

from service.context import TheContext, sender_of
from service.door.idempotency import TheIdempotencyKey, body_parts
from service.door.problems import invalid
from service.door.strict_route import require_content

MEDIA_TYPE = "application/zip"


@dataclass(frozen=True)
class PostedZip:
    """The file, open at its start; it is gone once it is closed. ``sha256`` is of its bytes."""

    file: IO[bytes]
    sha256: str


async def _read(
    request: Request, context: TheContext, idempotency: TheIdempotencyKey
) -> AsyncIterator[PostedZip]:
    require_content(request, MEDIA_TYPE)
    digest = hashlib.sha256()
    with tempfile.TemporaryFile(dir=context.home.path) as file:
        async for part in body_parts(request, idempotency):
            digest.update(part)
            await run_sync(file.write, part)
        if file.tell() == 0:
            raise invalid(("body", "Field required"))
        file.seek(0)
        await sender_of(request)  # once more: the body may have taken long to arrive
        yield PostedZip(file, digest.hexdigest())


ThePostedZip = Annotated[PostedZip, Depends(_read)]
"""The zip file in a request's body, which is read here."""
