"""GET /healthz and GET /v1/models."""

from fastapi import APIRouter

from api_schemas.models import AdapterAsModel, Health, ModelList
from service.context import TheCaller, TheContext, needs
from service.door.strict_route import StrictRoute
from service.routes.responses import problems
from storage import adapters

public = APIRouter(route_class=StrictRoute, tags=["daemon"])
router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["models"])


@public.get("/healthz", responses=problems())
async def health() -> Health:  # no thread: it answers while all of them wait for the writer
    """Whether the daemon answers. It needs no token."""
    return Health()


@router.get("/models", responses=problems(), dependencies=[needs("status:read", "predict")])
def list_models(context: TheContext, caller: TheCaller) -> ModelList:
    """The installed base models; and the client's adapters, as the models that OpenAI's have."""
    with context.database.read() as session:
        own = adapters.page(session, caller.id, after="", limit=adapters.MOST_ADAPTERS)
    return ModelList(
        data=[
            AdapterAsModel(id=one.name, created=one.created_at // 1000, owned_by=caller.name)
            for one in own
        ],
        models=[model.info() for model in context.models.every()],
    )
