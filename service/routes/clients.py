"""/v1/client and /v1/clients: who an app is here, and the owner's list of apps."""

from fastapi import APIRouter, Response
from sqlmodel import Session

from api_schemas.clients import Client as ClientAnswer
from api_schemas.clients import ClientChange, ClientPage, Credentials
from service.clients.auth import new_token, token_hash
from service.clients.client_views import client_answer, credentials_answer
from service.context import Context, TheContext, TheSender, needs
from service.door.cursors import A_PAGE, Cursor, Limit, cut, decode_text
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.routes.lookups import client_or_401
from service.routes.responses import problems
from storage import clients, history
from storage.tables import Client

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["clients"])


@router.get("/client", responses=problems(), dependencies=[needs()])
def get_own_client(context: TheContext, sender: TheSender) -> ClientAnswer:
    """Who the token belongs to, what it may do, and how much of its quotas is used."""
    with context.database.read() as session:
        return client_answer(session, client_or_401(session, sender))


@router.post("/client/rotate", responses=problems(409), dependencies=[needs()])
def rotate_own_client(context: TheContext, sender: TheSender, response: Response) -> Credentials:
    """Get a new token and server key in place of the own ones, which stop at once.

    They are told once. If the answer is lost, the app has to be paired again.
    """
    token = new_token()
    with context.database.write() as session:
        row = _not_the_owner(client_or_401(session, sender))
        _renew(session, row, token)
    return _told_once(context, row, token, response)


@router.get("/clients", responses=problems(), dependencies=[needs("admin")])
def list_clients(context: TheContext, limit: Limit = A_PAGE, cursor: Cursor = None) -> ClientPage:
    """All clients by name, the owner among them."""
    after = "" if cursor is None else decode_text("clients", cursor)
    with context.database.read() as session:
        rows = clients.page(session, after=after, limit=limit + 1)
        shown, following = cut("clients", rows, limit, lambda row: row.name)
        answers = [client_answer(session, row) for row in shown]
    return ClientPage(clients=answers, next=following)


@router.get("/clients/{name}", responses=problems(404), dependencies=[needs("admin")])
def get_client(name: str, context: TheContext) -> ClientAnswer:
    """One client."""
    with context.database.read() as session:
        return client_answer(session, _client_or_404(session, name))


@router.patch(
    "/clients/{name}", responses=problems(404, 409, body=True), dependencies=[needs("admin")]
)
def change_client(name: str, body: ClientChange, context: TheContext) -> ClientAnswer:
    """Change what a client may do, and how much; it holds from its next request on."""
    with context.database.write() as session:
        row = _not_the_owner(_client_or_404(session, name))
        if body.scopes is not None:
            row.scopes = list(body.scopes)
        if body.quotas is not None:
            clients.set_quotas(row, body.quotas.model_dump(exclude_unset=True))
        if session.is_modified(row):
            session.add(row)
            history.add(session, "client-changed", "its scopes or quotas were changed", row.id)
        session.flush()
        answer = client_answer(session, row)
    context.authenticator.learn(context.database)
    return answer


@router.post("/clients/{name}/revoke", responses=problems(404, 409), dependencies=[needs("admin")])
def revoke_client(name: str, context: TheContext) -> ClientAnswer:
    """Take a client's token away. Its adapters and examples stay; pairing it anew gives access."""
    with context.database.write() as session:
        row = _not_the_owner(_client_or_404(session, name))
        if row.token_hash is not None:
            row.token_hash = None
            session.add(row)
            history.add(session, "client-revoked", "its token was revoked", row.id)
        session.flush()
        answer = client_answer(session, row)
    context.authenticator.learn(context.database)
    return answer


@router.post("/clients/{name}/rotate", responses=problems(404, 409), dependencies=[needs("admin")])
def rotate_client(name: str, context: TheContext, response: Response) -> Credentials:
    """Make a new token and server key for a client. The old ones stop at once."""
    token = new_token()
    with context.database.write() as session:
        row = _not_the_owner(_client_or_404(session, name))
        if row.token_hash is None:
            raise Refusal(
                409, "the client's token is revoked; give it access again by pairing with replace"
            )
        _renew(session, row, token)
    return _told_once(context, row, token, response)


def _renew(session: Session, row: Client, token: str) -> None:
    clients.renew(session, row, token_hash(token.encode()))
    history.add(session, "client-rotated", "its token and server key were replaced", row.id)


def _told_once(context: Context, row: Client, token: str, response: Response) -> Credentials:
    context.authenticator.learn(context.database)
    response.headers["Cache-Control"] = "no-store"
    return credentials_answer(row, token, context.server_keys)


def _client_or_404(session: Session, name: str) -> Client:
    row = clients.find(session, name)
    if row is None:
        raise Refusal(404, "there is no client of that name; GET /v1/clients lists them")
    return row


def _not_the_owner(row: Client) -> Client:
    if row.name == clients.OWNER:
        raise Refusal(
            409,
            "the owner's token and rights can't be changed here; for a new token delete the file "
            "'token' of the home folder and start the daemon again",
        )
    return row
