"""/v1/adapters: creating adapters, and how they are."""

from fastapi import APIRouter, Response
from sqlmodel import Session

from api_schemas.adapters import DEFAULT_MAX_TOKENS, AdapterList, NewAdapter
from api_schemas.adapters import Adapter as AdapterAnswer
from service.context import Context, TheCaller, TheContext, needs
from service.idempotency import TheIdempotency
from service.models import Manifest, ModelError
from service.problems import Refusal, invalid
from service.routes.lookups import adapter_or_404, client_or_401
from service.routes.responses import problems
from service.strict_route import StrictRoute
from service.training_status import not_training_because
from service.views import adapter_answer
from storage import adapters, examples
from storage.adapters import AdapterExistsError
from storage.tables import Adapter

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["adapters"])


@router.post(
    "",
    status_code=201,
    responses=problems(409, body=True),
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
        labels=new.labels,
        max_tokens=_max_tokens(new, model),
        too_long=new.too_long,
        training=new.training.model_dump(),
    )
    _check_labels(context, model, row)
    location = f"/v1/adapters/{row.name}"
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        client_or_401(session, caller)
        try:
            adapters.create(session, row)
        except AdapterExistsError as error:
            raise Refusal(409, str(error)) from None
        answer = _answer(session, context, row)
        idempotency.remember(session, 201, answer, adapter_id=row.id, location=location)
    response.headers["Location"] = location
    return answer


@router.get("", responses=problems(), dependencies=[needs("status:read")])
def list_adapters(context: TheContext, caller: TheCaller) -> AdapterList:
    """The caller's adapters, by name."""
    with context.database.read() as session:
        rows = adapters.of_client(session, caller.id)
        return AdapterList(adapters=[_answer(session, context, row) for row in rows])


@router.get("/{name}", responses=problems(404), dependencies=[needs("status:read")])
def get_adapter(name: str, context: TheContext, caller: TheCaller) -> AdapterAnswer:
    """One adapter: its examples counted, its run, its active version, why it isn't training."""
    with context.database.read() as session:
        return _answer(session, context, adapter_or_404(session, caller, name))


def _answer(session: Session, context: Context, row: Adapter) -> AdapterAnswer:
    counts = examples.counts(session, row.id)
    reason = not_training_because(
        session, row, counts, context.models, context.supervisor.waiting_because
    )
    return adapter_answer(session, row, counts, reason)


def _max_tokens(new: NewAdapter, model: Manifest) -> int:
    if new.max_tokens is None:
        return min(DEFAULT_MAX_TOKENS, model.context_length)
    if new.max_tokens > model.context_length:
        raise invalid(
            (
                "body.max_tokens",
                f"must be at most the context of {model.name}, {model.context_length} tokens",
            )
        )
    return new.max_tokens


def _check_labels(context: Context, model: Manifest, row: Adapter) -> None:
    for index, label in enumerate(row.labels or ()):
        field = f"body.labels[{index}]"
        measure = context.lengths.measure(model, "", label)
        if not measure.exact:
            raise invalid((field, f"the tokens of {model.name} can't spell this label exactly"))
        if measure.least >= row.max_tokens:
            raise invalid(
                (
                    field,
                    f"needs {measure.least} tokens with the chat template and leaves no room for "
                    f"an input in max_tokens = {row.max_tokens}",
                )
            )
