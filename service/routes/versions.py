"""/v1/adapters/{name}/versions: the results of trainings."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from starlette.responses import StreamingResponse

from api_schemas.base import LARGEST_ID
from api_schemas.versions import VersionDetail, VersionList
from service.archive import chunks, zip_files
from service.context import TheCaller, TheContext, needs
from service.door.cursors import A_PAGE, Cursor, Limit, cut, decode
from service.door.problems import Refusal
from service.door.strict_route import StrictRoute
from service.gguf_export import gguf_file
from service.routes.lookups import adapter_or_404, version_or_404
from service.routes.responses import problems
from service.runs.adoption import MANIFEST_NAME
from service.views import version_answer, version_detail
from storage import versions

_LIST = "versions"
_GONE = "the files of this version are gone from the home folder"
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
    return VersionList(versions=[version_answer(row) for row in shown], next=following)


@router.get(
    "/{name}/versions/{number}", responses=problems(404, 410), dependencies=[needs("status:read")]
)
def get_version(name: str, number: Number, context: TheContext, caller: TheCaller) -> VersionDetail:
    """One version, with its holdout row by row (labels only with `adapters:manage`)."""
    with context.database.read() as session:
        adapter = adapter_or_404(session, caller, name)
        version = version_or_404(session, adapter, number)
        rows = _holdout_rows(context.home.path / version.path)
        return version_detail(session, version, rows, with_labels=caller.may("adapters:manage"))


@router.get(
    "/{name}/versions/{number}/download",
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
        raise Refusal(410, _GONE) from None
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


def _holdout_rows(folder: Path) -> list[dict[str, Any]]:
    # Not kept in the database: a status would read them all each time it names a version.
    try:
        rows: list[dict[str, Any]] = json.loads((folder / MANIFEST_NAME).read_bytes())[
            "holdout_rows"
        ]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        raise Refusal(410, _GONE) from None
    return rows
