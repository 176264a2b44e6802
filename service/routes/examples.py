"""/v1/adapters/{name}/examples: handing examples in, and reading them back."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from sqlmodel import Session

from api_schemas.base import LARGEST_ID, ExternalId
from api_schemas.examples import (
    MOST_LINES,
    AcceptedExample,
    AcceptedExamples,
    ExampleList,
    ExampleStatus,
    PostedExample,
    PostedExamples,
    Split,
)
from api_schemas.examples import Example as ExampleAnswer
from service.context import TheCaller, TheContext, needs
from service.door import ndjson
from service.door.cursors import Cursor, decode, encode
from service.door.door_check import check
from service.door.idempotency import TheIdempotencyKey
from service.door.posted import Posted, ThePosted
from service.door.problems import Refusal
from service.door.strict_route import JSON, StrictRoute
from service.routes.lookups import adapter_or_404, client_or_401, example_or_404
from service.routes.responses import problems, schema_of
from service.views import example_answer
from storage import example_pages, examples, retention, usage
from storage.clock import now_ms
from storage.examples import ExampleConflictError, Kept
from storage.tables import Adapter, Client
from storage.usage import QuotaError

MOST_A_PAGE = 1000
_LIST = "examples"

_MORE_TO_EXPIRE = 1000
"""Examples that may expire with a request beyond as many as it brings."""

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "anyOf": [schema_of(PostedExample), schema_of(PostedExamples)],
                }
            },
            ndjson.MEDIA_TYPE: {
                "schema": {
                    "type": "string",
                    "description": f"A PostedExample on each line, at most {MOST_LINES} of them. "
                    "Errors name the line.",
                },
                "example": '{"input": "See you at 8?", "label": "now"}\n'
                '{"input": "Our newsletter", "label": "later", "external_id": "sms-17"}\n',
            },
        },
    }
}

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["examples"])


@router.post(
    "/{name}/examples",
    status_code=201,
    responses=problems(404, 409, 429, body=True),
    response_model=AcceptedExamples,
    openapi_extra=_BODY,
    dependencies=[needs("examples:write")],
)
def post_examples(
    name: str,
    posted: ThePosted,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotencyKey,
) -> AcceptedExamples | Response:
    """Keep one example, or many, or one a line (NDJSON): all, or on any error none.

    With the 201 they are on the disk. An `external_id` sent again corrects its example, also an
    expired one, which then begins anew. Where the adapter has a bound (`max_examples`), the oldest
    expire at once, and with them perhaps some of these.
    """
    with context.database.read() as session:
        if (again := idempotency.replay(session)) is not None:
            return again  # whatever the adapter has become since
        adapter = adapter_or_404(session, caller, name)
    cut = check(context.models, context.lengths, adapter, posted)
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        now = adapter_or_404(session, caller, name)
        if (now.id, now.revision) != (adapter.id, adapter.revision):
            cut = check(context.models, context.lengths, now, posted)
        rows = _keep(session, client_or_401(session, caller), now, posted)
        answer = AcceptedExamples(
            examples=[
                AcceptedExample(id=row.id, split=row.split, cut_tokens=tokens)
                for row, tokens in zip(rows, cut, strict=True)
            ]
        )
        idempotency.remember(session, 201, answer, adapter_id=now.id)
        expired = retention.expire(session, now, now_ms(), most=len(rows) + _MORE_TO_EXPIRE)
    if expired or any(row.replaces for row in rows):
        context.supervisor.examples_changed(now.id)
    return answer


def _keep(session: Session, client: Client, adapter: Adapter, posted: Posted) -> list[Kept]:
    try:
        plan = examples.plan(session, adapter, posted.examples)
    except ExampleConflictError as error:
        posted.refuse(posted.fault(one.index, one.field, one.message) for one in error.conflicts)
        raise
    try:
        usage.charge(
            session,
            client,
            len(plan.steps),
            plan.more_bytes,
            now_ms(),
            new_pending=plan.more_pending,
        )
    except QuotaError as error:
        headers = {"Retry-After": str(error.retry_after_seconds)}
        raise Refusal(429, str(error), headers=headers) from None
    return examples.keep(session, adapter, plan)


@router.get("/{name}/examples", responses=problems(404), dependencies=[needs("adapters:manage")])
def list_examples(
    name: str,
    context: TheContext,
    caller: TheCaller,
    limit: Annotated[
        int, Query(ge=1, le=MOST_A_PAGE, description="The most that a page may have.")
    ] = 100,
    cursor: Cursor = None,
    split: Annotated[Split | None, Query(description="Only those of this split.")] = None,
    status: Annotated[ExampleStatus | None, Query(description="Only those so far.")] = None,
    external_id: Annotated[
        ExternalId | None, Query(description="Only the one with this id of the app's own.")
    ] = None,
) -> ExampleList:
    """The adapter's examples by id, a page at a time."""
    after = 0 if cursor is None else decode(_LIST, cursor)
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        rows = example_pages.page(
            session,
            adapter.id,
            after=after,
            limit=limit,
            split=split,
            status=status,
            external_id=external_id,
        )
    return ExampleList(
        examples=[example_answer(row) for row in rows.examples],
        next=encode(_LIST, rows.examples[-1].id) if rows.more else None,
    )


@router.get(
    "/{name}/examples/{example_id}",
    responses=problems(404),
    dependencies=[needs("adapters:manage")],
)
def get_example(
    name: str,
    example_id: Annotated[int, Path(ge=1, le=LARGEST_ID)],
    context: TheContext,
    caller: TheCaller,
) -> ExampleAnswer:
    """One example."""
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        return example_answer(example_or_404(session, adapter, example_id))
