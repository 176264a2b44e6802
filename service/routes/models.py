"""GET /healthz and GET /v1/models."""

from fastapi import APIRouter

from api_schemas.models import Health, ModelList
from service.context import TheContext, needs
from service.door.strict_route import StrictRoute
from service.routes.responses import problems

public = APIRouter(route_class=StrictRoute, tags=["daemon"])
router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["models"])


@public.get("/healthz", responses=problems())
async def health() -> Health:  # no thread: it answers while all of them wait for the writer
    """Whether the daemon answers. It needs no token."""
    return Health()


@router.get("/models", responses=problems(), dependencies=[needs("status:read")])
def list_models(context: TheContext) -> ModelList:
    """The installed base models."""
    return ModelList(models=[model.info() for model in context.models.every()])
