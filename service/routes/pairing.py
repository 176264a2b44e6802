"""Pairing codes, POST /v1/pair and GET /v1/hello: how an app gets its token, and knows us again."""

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from api_schemas.clients import (
    DEFAULT_EXAMPLES_PER_DAY,
    DEFAULT_MOST_BYTES,
    DEFAULT_MOST_PENDING,
    Credentials,
)
from api_schemas.pairing import (
    Hello,
    KeyId,
    NewPairingCode,
    Nonce,
    PairingCode,
    PairingState,
    PairRequest,
)
from service.clients.auth import new_token, token_hash
from service.clients.client_views import credentials_answer
from service.clients.pairing import (
    CODE_SECONDS,
    CodeState,
    Offer,
    TooManyCodesError,
    WrongCodeError,
)
from service.context import Context, TheContext, needs
from service.door.problems import Refusal, invalid
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from service.views import timestamp
from storage import clients, history
from storage.clients import ClientExistsError
from storage.clock import now_ms

LEAST_NONCE_BYTES, MOST_NONCE_BYTES = 16, 64

_DEFAULTS = {
    "examples_per_day": DEFAULT_EXAMPLES_PER_DAY,
    "most_bytes": DEFAULT_MOST_BYTES,
    "most_pending": DEFAULT_MOST_PENDING,
}

public = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["pairing"])
router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["pairing"])


@public.post("/pair", status_code=201, responses=problems(409, body=True))
async def pair(body: PairRequest, context: TheContext, response: Response) -> Credentials:
    """Turn a pairing code into a token and a server key. They are told once, so keep them.

    A code works once, for two minutes; five wrong codes in all make every waiting one void. A
    code that doesn't work is a 403, half a second later, and never says why.
    """
    response.headers["Cache-Control"] = "no-store"
    try:
        return await run_in_threadpool(_pair, context, body)
    except WrongCodeError as error:
        await context.penalty.wait()
        raise Refusal(403, str(error)) from None
    except ClientExistsError as error:
        raise Refusal(409, str(error)) from None


def _pair(context: Context, body: PairRequest) -> Credentials:
    token = new_token()
    digits = body.code.replace(" ", "").replace("-", "")
    with context.desk.redeem(digits, body.name) as offer, context.database.write() as session:
        row = clients.pair(
            session,
            offer.name,
            token_hash(token.encode()),
            offer.scopes,
            offer.quotas,
            defaults=_DEFAULTS,
            replace=offer.replace,
        )
        scopes = ", ".join(row.scopes)
        history.add(session, "client-paired", f"paired with the scopes {scopes}", row.id)
    context.authenticator.learn(context.database)
    return credentials_answer(row, token, context.server_keys)


@public.get("/hello", responses=problems())
async def hello(
    context: TheContext,
    nonce: Annotated[Nonce, Query(description="16 to 64 random bytes of your own, in base64url.")],
    key: Annotated[KeyId, Query(description="Your `server_key_id`.")],
) -> Hello:
    """Prove to a client that this is the daemon it was paired with, before it sends its token.

    Any app can listen on the daemon's port while the daemon is not running. So ask with a fresh
    nonce on each new connection, check the proof, and go on over the same connection. An unknown
    key is answered as well, with a proof that no key fits.
    """
    if not LEAST_NONCE_BYTES <= _decoded_size(nonce) <= MOST_NONCE_BYTES:
        raise invalid(("query.nonce", "must be 16 to 64 bytes in base64url"))
    known = context.authenticator.has_key(key)
    proof = context.server_keys.proof(key, nonce, known=known)
    return Hello(proof=base64.urlsafe_b64encode(proof).decode().rstrip("="))


def _decoded_size(nonce: str) -> int:
    bare = nonce.rstrip("=")
    try:
        return len(base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4)))
    except binascii.Error:
        return 0


@router.post(
    "/pairing-codes",
    status_code=201,
    responses=problems(409, 429, body=True),
    dependencies=[needs("admin")],
)
def create_pairing_code(
    body: NewPairingCode, context: TheContext, response: Response
) -> PairingCode:
    """Make a code that a person types into an app within two minutes.

    A waiting code for the same name becomes void, and so do all codes when the daemon restarts.
    """
    if body.name == clients.OWNER:
        raise invalid(("body.name", "is the owner's, whose token lies in the home folder"))
    with context.database.read() as session:
        if clients.find(session, body.name) is not None and not body.replace:
            raise Refusal(409, str(ClientExistsError()))
    quotas = {} if body.quotas is None else body.quotas.model_dump(exclude_unset=True)
    try:
        code = context.desk.offer(Offer(body.name, tuple(body.scopes), quotas, body.replace))
    except TooManyCodesError as error:
        raise Refusal(429, str(error), headers={"Retry-After": str(error.seconds)}) from None
    response.headers["Location"] = f"/v1/pairing-codes/{body.name}"
    response.headers["Cache-Control"] = "no-store"
    expires = timestamp(now_ms() + CODE_SECONDS * 1000)
    return PairingCode(code=code, name=body.name, scopes=body.scopes, expires_at=expires)


@router.get("/pairing-codes/{name}", responses=problems(404), dependencies=[needs("admin")])
def get_pairing_code(name: str, context: TheContext) -> PairingState:
    """What became of the last code for a name. The code itself is told once, when it is made."""
    return _state(context.desk.state(name))


@router.delete("/pairing-codes/{name}", responses=problems(404), dependencies=[needs("admin")])
def withdraw_pairing_code(name: str, context: TheContext) -> PairingState:
    """Make the waiting code for a name void; one that was used or has expired stays as it is."""
    return _state(context.desk.void(name))


def _state(state: CodeState | None) -> PairingState:
    if state is None:
        raise Refusal(
            404,
            "no code was made for that name since the daemon started; make one with "
            "POST /v1/pairing-codes",
        )
    return PairingState(state=state)
