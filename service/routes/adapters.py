"""/v1/adapters: creating adapters, changing them, and how they are."""

from typing import Any

from fastapi import APIRouter, BackgroundTasks, Response
from sqlmodel import Session

from api_schemas.adapters import Adapter as AdapterAnswer
from api_schemas.adapters import AdapterChange, AdapterList, NewAdapter
from service import retention
from service.adapter_settings import (
    check_labels,
    max_tokens_of,
    settings_after,
    top_layers_of,
)
from service.context import Context, TheCaller, TheContext, needs
from service.door.cursors import A_PAGE, Cursor, Limit, cut, decode_text
from service.door.etags import IfMatch, etag, require_match
from service.door.idempotency import TheIdempotency
from service.door.problems import Refusal, invalid
from service.door.strict_route import StrictRoute
from service.models import ModelError
from service.nights.outlook import Outlook
from service.routes.lookups import adapter_or_404, client_or_401
from service.routes.responses import problems
from service.runs.training_status import why
from service.versions.keeping import keep_newest
from service.views import adapter_answer
from storage import adapters, examples, history
from storage.adapters import AdapterExistsError, TooManyAdaptersError
from storage.clock import now_ms
from storage.retention import expire
from storage.tables import Adapter

_LIST = "adapters"
_BOUNDS = frozenset({"keep_days", "max_examples"})
_ETAG: dict[str, Any] = {
    "ETag": {"description": "Of the settings, for If-Match.", "schema": {"type": "string"}}
}
_WITH_ETAG: dict[int | str, dict[str, Any]] = {200: {"headers": _ETAG}}

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["adapters"])


@router.post(
    "",
    status_code=201,
    responses=problems(409, body=True) | {201: {"headers": _ETAG}},
    response_model=AdapterAnswer,
    dependencies=[needs("adapters:manage")],
)
def create_adapter(
    new: NewAdapter,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
) -> AdapterAnswer | Response:
    """Create an adapter on an installed base model."""
    try:
        model = context.models.get(new.base_model)
    except ModelError as error:
        raise invalid(("body.base_model", str(error))) from None
    row = Adapter(
        client_id=caller.id,
        name=new.name,
        base_model=model.name,
        base_hash=model.base_hash,
        method=new.method,
        rank=new.rank,
        alpha=new.alpha,
        targets=list(new.targets),
        use_rslora=new.use_rslora,
        top_layers=top_layers_of(new, model),
        labels=new.labels,
        max_tokens=max_tokens_of(new, model),
        too_long=new.too_long,
        training=new.training.model_dump(),
        night=new.night.model_dump(exclude_unset=True),
        keep_days=new.retention.keep_days,
        max_examples=new.retention.max_examples,
        keep_versions=new.retention.keep_versions,
    )
    check_labels(context.lengths, model, row.labels, row.max_tokens)
    location = f"/v1/adapters/{row.name}"
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        client_or_401(session, caller)
        try:
            adapters.create(session, row)
        except (AdapterExistsError, TooManyAdaptersError) as error:
            raise Refusal(409, str(error)) from None
        history.add(session, "adapter-created", "it was created", caller.id, adapter=row.name)
        answer = _answer(session, context, row)
        idempotency.remember(session, 201, answer, adapter_id=row.id, location=location)
    response.headers["Location"] = location
    response.headers["ETag"] = etag(row.revision)
    return answer


@router.get("", responses=problems(), dependencies=[needs("status:read")])
def list_adapters(
    context: TheContext, caller: TheCaller, limit: Limit = A_PAGE, cursor: Cursor = None
) -> AdapterList:
    """The caller's adapters, by name."""
    after = "" if cursor is None else decode_text(_LIST, cursor)
    with context.database.read() as session:
        rows = adapters.page(session, caller.id, after=after, limit=limit + 1)
        shown, following = cut(_LIST, rows, limit, lambda row: row.name)
        outlook = context.conductor.outlook(session)
        answers = [_answer(session, context, row, outlook) for row in shown]
    return AdapterList(adapters=answers, next=following)


@router.get("/{name}", responses=problems(404) | _WITH_ETAG, dependencies=[needs("status:read")])
def get_adapter(
    name: str, context: TheContext, caller: TheCaller, response: Response
) -> AdapterAnswer:
    """One adapter: its examples counted, its run, its active version, why it isn't training."""
    with context.database.read() as session:
        row = adapter_or_404(session, caller, name)
        response.headers["ETag"] = etag(row.revision)
        return _answer(session, context, row)


@router.patch(
    "/{name}",
    responses=problems(404, 409, 412, 428, body=True) | _WITH_ETAG,
    response_model=AdapterAnswer,
    dependencies=[needs("adapters:manage")],
)
def change_adapter(
    name: str,
    change: AdapterChange,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    response: Response,
    background: BackgroundTasks,
    if_match: IfMatch = None,
) -> AdapterAnswer | Response:
    """Change settings, if they are still those of the ETag in `If-Match`.

    The settings hold for examples that come from now on, and for runs that begin from now on: an
    unfinished run goes on with those it began with. Labels that examples still have can't be
    taken away. Of examples that a lower bound leaves out, a thousand expire at once, and the
    others in the seconds after the answer.
    """
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        row = adapter_or_404(session, caller, name)
        require_match(if_match, row.revision)
        changed = adapters.change(session, row, settings_after(context, session, row, change))
        if changed:
            message = f"its {', '.join(changed)} changed"
            history.add(session, "adapter-changed", message, caller.id, adapter=row.name)
        expired = 0
        fewer = "keep_versions" in changed and keep_newest(context.home, session, row) > 0
        if not _BOUNDS.isdisjoint(changed):
            expired = expire(session, row, now_ms(), most=retention.BATCH)
        answer = _answer(session, context, row)
        idempotency.remember(session, 200, answer, adapter_id=row.id)
    if expired:
        context.supervisor.examples_changed(row.id)
    if expired or fewer:
        context.eraser.erase_now()
    if expired == retention.BATCH:
        background.add_task(retention.apply, context.database, context.supervisor, row.id)
    response.headers["ETag"] = etag(row.revision)
    return answer


def _answer(
    session: Session, context: Context, row: Adapter, outlook: Outlook | None = None
) -> AdapterAnswer:
    counts = examples.counts(session, row.id)
    outlook = outlook or context.conductor.outlook(session)
    return adapter_answer(session, context.home, row, counts, why(session, row, counts, outlook))
