"""GET /v1/history: what happened to the caller's adapters and runs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from api_schemas.history import HistoryEntry, HistoryPage
from api_schemas.scopes import ADMIN
from service.context import TheCaller, TheContext, TheSender, needs
from service.door import cursors
from service.door.cursors import A_PAGE, Cursor, Limit
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from service.views import timestamp
from storage import clients, history

_CURSOR = "history"
MOST_KINDS = 20

Kind = Annotated[str, Field(max_length=40, examples=["run-failed"])]

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["device"])


@router.get("/history", responses=problems(404), dependencies=[needs("status:read")])
def list_history(
    request: Request,
    context: TheContext,
    caller: TheCaller,
    sender: TheSender,
    limit: Limit = A_PAGE,
    cursor: Cursor = None,
    adapter: Annotated[str | None, Query(max_length=64, description="Its name.")] = None,
    kind: Annotated[
        list[Kind],
        Query(max_length=MOST_KINDS, description="Its kind; may be repeated: one of these."),
    ] = [],  # noqa: B006 - FastAPI copies it
    everyone: Annotated[bool, Query(description="Of all clients (scope admin only).")] = False,
) -> HistoryPage:
    """The newest first. The daemon keeps the last 10,000 of each client, 1,000 of them of one kind.

    A token with the scope admin, unless it acts for another client, also gets what concerns the
    whole daemon.
    """
    if everyone and not sender.may(ADMIN):
        raise Refusal(403, "only a token with the scope admin may read everyone's history")
    if everyone and sender.id != caller.id:
        raise Refusal(422, "expected one of client and everyone, found both; leave one out")
    before = None if cursor is None else cursors.decode(_CURSOR, cursor)
    with context.database.read() as session:
        rows = history.page(
            session,
            None if everyone else caller.id,
            before=before,
            limit=limit + 1,
            adapter=adapter,
            kinds=kind,
            with_daemon=sender.may(ADMIN) and sender.id == caller.id,
        )
        names = {client.id: client.name for client in clients.every(session)}
    shown, following = cursors.cut(_CURSOR, rows, limit, lambda row: row.id)
    return HistoryPage(
        entries=[
            HistoryEntry(
                id=row.id,
                at=timestamp(row.at),
                kind=row.kind,
                message=row.message,
                client=None if row.client_id is None else names[row.client_id],
                adapter=row.adapter,
                run=row.run_id,
            )
            for row in shown
        ],
        next=following,
    )
