"""/v1/adapters/{name}/versions: the results of trainings."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter
from sqlmodel import Session
from starlette.responses import StreamingResponse

from api_schemas.base import LARGEST_ID
from api_schemas.versions import Version, VersionDetail, VersionList
from service.archive import chunks, zip_files
from service.context import Context, TheCaller, TheContext, TheSender, needs
from service.door.cursors import A_PAGE, Cursor, Limit, cut, decode
from service.door.idempotency import Idempotency, TheIdempotency
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.gguf_export import gguf_file
from service.routes.lookups import adapter_or_404, version_or_404
from service.routes.responses import problems
from service.versions import activation
from service.versions.activation import GONE, ActivationError, GoneError, check_usable
from service.versions.files import MANIFEST_NAME
from service.views import version_answer, version_detail
from storage import versions
from storage.tables import Adapter
from storage.tables import Version as VersionRow

_LIST = "versions"
PEFT_FILES = ("README.md", "adapter_config.json", "adapter_model.safetensors")

router = APIRouter(prefix="/v1/adapters", route_class=StrictRoute, tags=["versions"])

Number = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]


@router.get("/{name}/versions", responses=problems(404), dependencies=[needs("status:read")])
def list_versions(
    name: str,
    context: TheContext,
    caller: TheCaller,
    limit: Limit = A_PAGE,
    cursor: Cursor = None,
) -> VersionList:
    """The adapter's versions, newest first."""
    before = None if cursor is None else decode(_LIST, cursor)
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        rows = versions.page(session, adapter.id, before=before, limit=limit + 1)
    shown, following = cut(_LIST, rows, limit, lambda row: row.number)
    return VersionList(
        versions=[version_answer(context.home, row) for row in shown], next=following
    )


@router.get(
    "/{name}/versions/{number:int}",
    responses=problems(404, 410),
    dependencies=[needs("status:read")],
)
def get_version(name: str, number: Number, context: TheContext, caller: TheCaller) -> VersionDetail:
    """One version, with its holdout row by row (labels only with `adapters:manage`)."""
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        version = version_or_404(session, adapter, number)
        rows = _holdout_rows(context.home.path / version.path)
        with_labels = caller.may("adapters:manage")
        return version_detail(session, context.home, version, rows, with_labels=with_labels)


@router.get(
    "/{name}/versions/{number:int}/download",
    responses=problems(404, 409, 410)
    | {
        200: {
            "description": "A zip file (peft) or a GGUF file (gguf).",
            "content": {"application/zip": {}, "application/octet-stream": {}},
        }
    },
    response_class=StreamingResponse,
    dependencies=[needs("adapters:download")],
)
def download_version(
    name: str,
    number: Number,
    context: TheContext,
    caller: TheCaller,
    format: Annotated[Literal["peft", "gguf"], Query()] = "peft",
) -> StreamingResponse:
    """The adapter: as a zip that the real `peft` loads, or as a GGUF LoRA for llama.cpp.

    409 where GGUF can't express it; `detail` says what.
    """
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        version = version_or_404(session, adapter, number)
    folder = context.home.path / version.path
    try:
        if format == "gguf":
            file = gguf_file(context.home.path, version.path)
            media_type, ending = "application/octet-stream", ".gguf"
        else:
            file = zip_files([folder / name for name in PEFT_FILES], context.home.path)
            media_type, ending = "application/zip", "-peft.zip"
    except FileNotFoundError:
        raise Refusal(410, GONE) from None
    size = file.seek(0, 2)
    file.seek(0)
    return StreamingResponse(
        chunks(file),
        media_type=media_type,
        headers={
            "Content-Length": str(size),
            "Content-Disposition": f'attachment; filename="{adapter.name}-{number}{ending}"',
        },
    )


@router.post(
    "/{name}/versions/{number:int}/activate",
    responses=problems(404, 409, 410),
    response_model=Version,
    dependencies=[needs("adapters:manage")],
)
def activate_version(
    name: str,
    number: Number,
    context: TheContext,
    caller: TheCaller,
    sender: TheSender,
    idempotency: TheIdempotency,
) -> Version | Response:
    """Make this the active version, whatever its verdict: to roll back, or as your own decision.

    It is on record, in the version and in the history, who decided so and when. The active version
    stays as it is. A later run is promoted only if it is better than this one.
    """
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        version = version_or_404(session, adapter, number)
        try:
            check_usable(context.home, context.models, adapter, version)
        except GoneError as error:
            raise Refusal(410, str(error)) from None
        except ActivationError as error:
            raise Refusal(409, str(error)) from None
        activation.activate(session, adapter, version, sender.name)
        return _changed(context, session, idempotency, adapter, version)


@router.post(
    "/{name}/versions/{number:int}/deactivate",
    responses=problems(404, 409),
    response_model=Version,
    dependencies=[needs("adapters:manage")],
)
def deactivate_version(
    name: str,
    number: Number,
    context: TheContext,
    caller: TheCaller,
    sender: TheSender,
    idempotency: TheIdempotency,
) -> Version | Response:
    """Have no active version: predictions then come from the bare base model.

    A version that isn't active stays as it is. A later run that is promoted becomes active again.
    """
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        version = version_or_404(session, adapter, number)
        activation.deactivate(session, adapter, version, sender.name)
        return _changed(context, session, idempotency, adapter, version)


def _changed(
    context: Context,
    session: Session,
    idempotency: Idempotency,
    adapter: Adapter,
    version: VersionRow,
) -> Version:
    session.flush()
    answer = version_answer(context.home, version)
    idempotency.remember(session, 200, answer, adapter_id=adapter.id)
    return answer


def _holdout_rows(folder: Path) -> list[dict[str, Any]]:
    # Not kept in the database: a status would read them all each time it names a version.
    try:
        rows: list[dict[str, Any]] = json.loads((folder / MANIFEST_NAME).read_bytes())[
            "holdout_rows"
        ]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        raise Refusal(410, GONE) from None
    return rows
