"""GET /v1/erasures/{id}: whether what was deleted has gone from the disk."""

from typing import Annotated

from fastapi import APIRouter, Path

from api_schemas.base import LARGEST_ID
from api_schemas.deletion import Erasure as ErasureAnswer
from api_schemas.scopes import ADMIN
from service.context import TheCaller, TheContext, needs
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from service.views import timestamp
from storage import erasures

router = APIRouter(prefix="/v1/erasures", route_class=StrictRoute, tags=["deletion"])


@router.get("/{erasure_id}", responses=problems(404), dependencies=[needs("status:read")])
def get_erasure(
    erasure_id: Annotated[int, Path(ge=1, le=LARGEST_ID)], context: TheContext, caller: TheCaller
) -> ErasureAnswer:
    """One erasure of the caller's (an admin sees everybody's), for 90 days after it is done."""
    owner = None if caller.may(ADMIN) else caller.id
    with context.database.read() as session:
        row = erasures.find(session, erasure_id, owner)
    if row is None:
        raise Refusal(404, "there is no erasure with that id; the answer to a DELETE names its own")
    return ErasureAnswer(
        id=row.id,
        what=row.what,
        examples=row.examples,
        erased="pending" if row.erased_at is None else "done",
        requested_at=timestamp(row.requested_at),
        erased_at=None if row.erased_at is None else timestamp(row.erased_at),
    )
