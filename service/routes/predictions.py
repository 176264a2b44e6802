"""POST /v1/adapters/{name}/predict: what an adapter says of texts."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request

from api_schemas.predictions import (
    DEFAULT_NEW_TOKENS,
    TEXT_OPTIONS,
    LabelPrediction,
    LabelProbability,
    Predictions,
    PredictRequest,
    TextPrediction,
    TokenUsage,
)
from api_schemas.problems import FieldError
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, needs
from service.door.problems import Refusal, invalid
from service.door.strict_route import StrictRoute
from service.predictions.asking import Addressee, addressee, labels_of, text_of, whole_answer
from service.predictions.events import LabelsOfInput
from service.routes.responses import problems

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["predictions"])


@router.post(
    "/{name}/predict",
    responses=problems(404, 409, 410, 429, 502, body=True),
    dependencies=[needs("predict")],
)
async def predict(
    name: str, request: Request, body: PredictRequest, context: TheContext, caller: TheCaller
) -> Predictions:
    """Ask the adapter for the labels of texts; of one without declared labels, for text.

    It is asked in its active version; while there is none, the bare base model answers
    (`version` is null). Nothing of it is kept, so an `Idempotency-Key` has no effect here: to ask
    again is to compute again, with the same answer. Streams of text come from
    `POST /v1/chat/completions`.
    """
    asked = await run_sync(_addressee, context, caller, name, body)
    if asked.adapter.labels is None:
        return await _texts(context, request, asked, body)
    question = asked.about_labels(body.all_inputs(), prior=body.prior)
    with _naming(body):
        answer = await whole_answer(context, request, question)
    found = labels_of(answer, len(body.all_inputs()))
    return Predictions(
        version=asked.number,
        engine=answer.engine,
        predictions=[_label_prediction(one) for one in found],
    )


def _addressee(context: Context, caller: Caller, name: str, body: PredictRequest) -> Addressee:
    with context.database.read() as session:
        asked = addressee(context, session, caller, name, number=body.version, prior=body.prior)
    if asked.adapter.labels is not None:
        given = sorted(TEXT_OPTIONS & body.model_fields_set)
        _refuse(given, "is of no use to an adapter with labels; leave it out")
    elif body.prior:
        _refuse(["prior"], "needs an adapter with declared labels; leave it out")
    return asked


def _refuse(names: Iterable[str], why: str) -> None:
    faults = [(f"body.{name}", why) for name in names]
    if faults:
        raise invalid(*faults)


async def _texts(
    context: Context, request: Request, asked: Addressee, body: PredictRequest
) -> Predictions:
    made, engine = [], None
    for place, text in enumerate(body.all_inputs()):
        question = asked.about_text(
            [{"role": "user", "content": text}],
            temperature=body.temperature or 0.0,
            top_p=body.top_p or 1.0,
            max_tokens=body.max_tokens or DEFAULT_NEW_TOKENS,
            stop=body.stop or [],
            seed=body.seed or 0,
            stream=False,
        )
        with _naming(body, place):
            answer = await whole_answer(context, request, question)
        made_text, finish_reason, usage = text_of(answer)
        tokens = TokenUsage(**usage.model_dump())
        made.append(TextPrediction(text=made_text, finish_reason=finish_reason, usage=tokens))
        engine = answer.engine
    return Predictions(version=asked.number, engine=engine, predictions=made)


@contextmanager
def _naming(body: PredictRequest, place: int | None = None) -> Iterator[None]:
    """Name the fields at fault as the request has them; ``place`` is that of the one input."""
    try:
        yield
    except Refusal as refusal:
        one = None if place is None else f"body.inputs[{place}]"
        if body.input is not None:
            one = "body.input"
        refusal.errors = [
            FieldError(field=one or error.field, message=error.message) for error in refusal.errors
        ]
        raise


def _label_prediction(found: LabelsOfInput) -> LabelPrediction:
    ordered = sorted(found.probabilities.items(), key=lambda one: -one[1])
    return LabelPrediction(
        label=found.label,
        probability=found.probabilities[found.label],
        labels=[LabelProbability(label=label, probability=share) for label, share in ordered],
        cut_tokens=found.cut_tokens,
    )
