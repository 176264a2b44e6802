"""POST /v1/adapters/{name}/versions/import: an adapter that PEFT wrote, as a version."""

import shutil

from fastapi import APIRouter, Response

from api_schemas.versions import Version
from service.context import TheCaller, TheContext, needs
from service.door.idempotency import TheIdempotencyKey
from service.door.posted_zip import MEDIA_TYPE, ThePostedZip
from service.door.problems import Refusal, not_now
from service.door.strict_route import StrictRoute
from service.routes.lookups import adapter_or_404
from service.routes.responses import problems
from service.runs.trigger import require_base_model
from service.versions.files import FilesError
from service.versions.imported import adopt_import, read_import
from service.versions.importing import import_path, import_version
from service.views import version_answer
from storage import erasures, versions

_BODY = {
    "required": True,
    "description": "A zip of what peft's `save_pretrained` wrote: adapter_config.json and "
    "adapter_model.safetensors, fp32, fp16 or bf16. At most 256 MiB.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
}

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["versions"])


@router.post(
    "/{name}/versions/import",
    status_code=201,
    responses=problems(404, 409, body=True)
    | {200: {"model": Version, "description": "This very file was imported before."}},
    response_model=Version,
    dependencies=[needs("adapters:manage")],
    openapi_extra={"requestBody": _BODY},
)
def import_adapter(
    name: str,
    posted: ThePostedZip,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotencyKey,
    response: Response,
) -> Version | Response:
    """Make a version of a LoRA adapter trained elsewhere: to begin a run with, or to activate.

    It must be a plain LoRA of this adapter's rank, alpha, targets and layers, on the same base
    model. It isn't measured, so lorad never activates it by itself; once you have, the next run is
    compared with it.
    """
    with context.database.read() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        require_base_model(context, adapter)
        path = import_path(adapter.id, posted.sha256)
        known = versions.at_path(session, path) is not None
        if any(path in erasure.paths for erasure in erasures.pending(session)):
            raise not_now("a version from this very file is just being erased; send it again", 1)
    if not known:
        import_version(context.home, adapter, path, posted.file)
    try:
        manifest = read_import(context.home, path)
    except FilesError as error:
        raise Refusal(
            409,
            f"this file was imported before, and that version is damaged: {error}; delete it, and "
            "import the file again",
        ) from None
    with context.database.write() as session:
        version = adopt_import(session, context.home, path, manifest)
        if version is None:
            shutil.rmtree(context.home.path / path, ignore_errors=True)
            raise Refusal(404, "the adapter was deleted meanwhile")
        session.flush()
        answer = version_answer(context.home, version)
        location = f"/v1/adapters/{adapter.name}/versions/{version.number}"
        status = 200 if known else 201
        idempotency.remember(session, status, answer, adapter_id=adapter.id, location=location)
    context.eraser.erase_now()  # older versions may have had to go
    response.status_code = status
    response.headers["Location"] = location
    return answer
