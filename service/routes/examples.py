"""/v1/adapters/{name}/examples: handing examples in, and reading them back."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from api_schemas.base import LARGEST_ID, ExternalId
from api_schemas.examples import (
    AcceptedExample,
    AcceptedExamples,
    ExampleList,
    ExamplesBody,
    ExampleStatus,
    PostedExample,
    Split,
)
from api_schemas.examples import Example as ExampleAnswer
from service.context import Context, TheCaller, TheContext, needs
from service.cursors import Cursor, decode, encode
from service.idempotency import TheIdempotency
from service.problems import invalid
from service.routes.lookups import adapter_or_404, example_or_404
from service.routes.responses import problems
from service.strict_route import StrictRoute
from service.views import example_answer
from storage import examples
from storage.examples import ExampleConflictError, NewExample
from storage.tables import Adapter

MOST_A_PAGE = 1000
_LIST = "examples"

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["examples"])


@router.post(
    "/{name}/examples",
    status_code=201,
    responses=problems(404, 409, body=True),
    response_model=AcceptedExamples,
    dependencies=[needs("examples:write")],
)
def post_examples(
    name: str,
    body: Annotated[ExamplesBody, Body()],
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
) -> AcceptedExamples | Response:
    """Keep one example, or many under ``examples``: all, or on any error none.

    With the 201 they are on the disk. An `external_id` sent again corrects its example.
    """
    one = isinstance(body, PostedExample)
    posted = [body] if isinstance(body, PostedExample) else body.examples
    with context.database.read() as session:
        if (again := idempotency.replay(session)) is not None:
            return again  # whatever the adapter has become since
        adapter = adapter_or_404(session, caller, name)
    cut = _check(context, adapter, posted, one=one)
    new = [NewExample(each.input, each.label, each.split, each.external_id) for each in posted]
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        now = adapter_or_404(session, caller, name)
        if (now.id, now.revision) != (adapter.id, adapter.revision):
            cut = _check(context, now, posted, one=one)
        try:
            rows = examples.add(session, now, new)
        except ExampleConflictError as error:
            raise invalid((_field(error.index, error.field, one=one), str(error))) from None
        answer = AcceptedExamples(
            examples=[
                AcceptedExample(id=row.id, split=row.split, cut_tokens=tokens)
                for row, tokens in zip(rows, cut, strict=True)
            ]
        )
        idempotency.remember(session, 201, answer, adapter_id=now.id)
    return answer


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
        rows = examples.page(
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


def _check(
    context: Context, adapter: Adapter, posted: list[PostedExample], *, one: bool
) -> list[int]:
    """Refuse what the adapter can't be trained on; return how many tokens each will lose."""
    model = context.models.get(adapter.base_model)
    errors: list[tuple[str, str]] = []
    cut: list[int] = []
    for index, example in enumerate(posted):
        label, text = _field(index, "label", one=one), _field(index, "input", one=one)
        if adapter.labels is not None and example.label not in adapter.labels:
            errors.append((label, "must be one of the adapter's labels"))
            continue
        measure = context.lengths.measure(model, example.input, example.label)
        over = max(0, measure.total - adapter.max_tokens)
        cut.append(over)
        if not measure.exact:
            errors.append((label, f"the tokens of {model.name} can't spell this label exactly"))
        elif measure.least >= adapter.max_tokens:
            errors.append(
                (
                    label,
                    f"has {measure.label} tokens and leaves no room for an input in "
                    f"max_tokens = {adapter.max_tokens}",
                )
            )
        elif over and adapter.too_long == "refuse":
            errors.append(
                (
                    text,
                    f"with its label and the chat template this is {measure.total} tokens, "
                    f"and the adapter takes at most {adapter.max_tokens}; shorten it, or "
                    "create the adapter with too_long = cut",
                )
            )
    if errors:
        raise invalid(*errors)
    return cut


def _field(index: int, name: str, *, one: bool) -> str:
    return f"body.{name}" if one else f"body.examples[{index}].{name}"
