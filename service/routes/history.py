"""GET /v1/history: what happened to the caller's adapters and runs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from api_schemas.history import HistoryEntry, HistoryPage
from api_schemas.scopes import ADMIN
from service.context import TheCaller, TheContext, TheSender, needs
from service.door import cursors
from service.door.cursors import A_PAGE, Cursor, Limit
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from service.views import timestamp
from storage import history

_CURSOR = "history"

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
    kind: Annotated[str | None, Query(max_length=40, examples=["run-failed"])] = None,
) -> HistoryPage:
    """The newest first. The daemon keeps the last 10,000 entries of each client.

    A token with the scope admin, unless it acts for another client, also gets what concerns the
    whole daemon.
    """
    before = None if cursor is None else cursors.decode(_CURSOR, cursor)
    with context.database.read() as session:
        rows = history.page(
            session,
            caller.id,
            before=before,
            limit=limit + 1,
            adapter=adapter,
            kind=kind,
            with_daemon=sender.may(ADMIN) and sender.id == caller.id,
        )
    shown, following = cursors.cut(_CURSOR, rows, limit, lambda row: row.id)
    return HistoryPage(
        entries=[
            HistoryEntry(
                id=row.id,
                at=timestamp(row.at),
                kind=row.kind,
                message=row.message,
                adapter=row.adapter,
                run=row.run_id,
            )
            for row in shown
        ],
        next=following,
    )
