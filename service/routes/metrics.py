"""GET /metrics: the daemon seen from outside, for Prometheus."""

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from service.context import TheContext, needs
from service.door.strict_route import StrictRoute
from service.metrics.exposition import MEDIA_TYPE
from service.metrics.page import metrics_page
from service.routes.responses import problems

router = APIRouter(route_class=StrictRoute, tags=["metrics"])


@router.get(
    "/metrics",
    responses=problems() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_class=PlainTextResponse,
    dependencies=[needs("metrics:read")],
)
def get_metrics(request: Request, context: TheContext) -> Response:
    """Counts and readings in the text format 0.0.4; adapters by their ids, and nothing of a text.

    The token may be one that can do nothing else (scope `metrics:read`).
    """
    return Response(metrics_page(context, request.app.version), media_type=MEDIA_TYPE)
