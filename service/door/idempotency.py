"""Idempotency-Key: a request that is sent again has its effect once, and the same answer.

A route asks for `TheIdempotency`, calls `replay` first thing in its write transaction, and
`remember` in the same transaction once it knows its answer::

    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        …
        idempotency.remember(session, 201, answer, adapter_id=adapter.id, location=location)

So the record and the effect are on the disk together or not at all. Without the header both do
nothing. The record is the sender's own: an admin's keys don't meet those of the client it acts for.
"""

import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import Depends, Header, Request
from pydantic import BaseModel
from sqlmodel import Session
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from service.clients.auth import Caller
from service.door.guard import CALLER
from service.door.problems import Refusal, invalid
from storage import idempotency
from storage.ledgers import IdempotencyRecord

MOST_KEY = 200
REPLAYED = "Idempotent-Replay"
"""The header that marks an answer as one that was given before."""

_TARGET = "to"
_ANSWER = "answer"

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MOST_KEY,
        pattern=r"^[ -~]+$",
        description="Any text of your own, for 24 hours: the same request sent again under the "
        "same key has its effect once and the same answer (with the header Idempotent-Replay); "
        "another request under it is a 409.",
    ),
]


class Idempotency:
    """One request's key, with the means to tell whether another request is the same."""

    def __init__(self, sender: Caller, key: str | None, method: str, target: str) -> None:
        """Begin with the ``sender``, method and raw path with query; the body goes to `feed`."""
        self._sender = sender
        self._key = key
        self._path = f"{method} {target.partition('?')[0]}"
        self._seen = hashlib.sha256(f"{method} {target}\n".encode())

    @property
    def given(self) -> bool:
        """Whether the request carries a key."""
        return self._key is not None

    def feed(self, part: bytes) -> None:
        """Take in the next part of the raw body."""
        if self._key is not None:
            self._seen.update(part)

    def replay(self, session: Session) -> Response | None:
        """The answer that this very request was given before; None if it is new.

        Raises:
            Refusal: 409 if another request was sent under this key.
        """
        if self._key is None:
            return None
        record = idempotency.find(session, self._sender.id, self._key)
        if record is None:
            return None
        same = record.answer[_TARGET] == self._path
        if record.digest is not None:  # it is NULL where deleted texts took part in it
            same = same and hmac.compare_digest(record.digest, self._digest(session))
        if not same:
            raise Refusal(
                409,
                "this Idempotency-Key was sent with another request in the last 24 hours; send a "
                "new key for a new request",
            )
        headers = {REPLAYED: "true"}
        if record.location is not None:
            headers["Location"] = record.location
        return JSONResponse(record.answer[_ANSWER], record.status, headers=headers)

    def remember(
        self,
        session: Session,
        status: int,
        answer: BaseModel,
        *,
        adapter_id: int | None = None,
        location: str | None = None,
    ) -> None:
        """Keep what the request is answered, in the transaction of its effect.

        ``adapter_id`` is the adapter with which the record shall go.
        """
        if self._key is None:
            return
        record = IdempotencyRecord(
            client_id=self._sender.id,
            adapter_id=adapter_id,
            key=self._key,
            digest=self._digest(session),
            status=status,
            location=location,
            answer={_TARGET: self._path, _ANSWER: answer.model_dump(mode="json")},
        )
        idempotency.keep(session, record)

    def amend(self, session: Session, answer: BaseModel) -> None:
        """Let replays give this answer, which the request was given after all.

        For what only shows after the transaction of the effect.
        """
        if self._key is None:
            return
        record = idempotency.find(session, self._sender.id, self._key)
        if record is not None:
            record.answer = record.answer | {_ANSWER: answer.model_dump(mode="json")}
            session.add(record)

    def _digest(self, session: Session) -> bytes:
        key = idempotency.hash_key(session, self._sender.id)
        if key is None:
            raise Refusal(401, "the client of this token has just been deleted; pair it again")
        return hmac.digest(key, self._seen.digest(), "sha256")


async def without_body(request: Request, key: Key = None) -> Idempotency:
    """The request's key, before its body is read: `body_parts` feeds it."""
    if len(request.headers.getlist("Idempotency-Key")) > 1:
        raise invalid(("header.Idempotency-Key", "is given twice; give it once"))
    sender = cast(Caller, request.scope[CALLER])
    target = cast(bytes, request.scope["raw_path"]).decode("latin-1")
    if query := cast(bytes, request.scope["query_string"]).decode("latin-1"):
        target += f"?{query}"
    return Idempotency(sender, key, request.method, target)


async def body_parts(request: Request, idempotency: Idempotency) -> AsyncIterator[bytes]:
    """The raw body as it comes in, fed to ``idempotency``.

    Raises:
        Refusal: 400 if the client goes away before its end.
    """
    try:
        async for part in request.stream():
            idempotency.feed(part)
            yield part
    except ClientDisconnect:
        raise Refusal(400, "the body ended before it was complete; send it again") from None


async def _with_body(
    request: Request, idempotency: Annotated[Idempotency, Depends(without_body)]
) -> Idempotency:
    if idempotency.given:
        async for _ in body_parts(request, idempotency):
            pass
    return idempotency


TheIdempotency = Annotated[Idempotency, Depends(_with_body)]
"""For routes that take their body, if any, the usual way."""

TheIdempotencyKey = Annotated[Idempotency, Depends(without_body)]
"""For routes that read their body themselves with `body_parts`."""
