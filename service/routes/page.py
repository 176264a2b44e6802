"""GET / and GET /page/{file}: the page for people, which asks the API like any client."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.door.problems import Refusal
from service.page_files import CONTENT_SECURITY_POLICY, MEDIA_TYPES, PAGE_FILES, content

router = APIRouter()


@router.get("/", include_in_schema=False)
@router.get("/page/{file}", include_in_schema=False)
def page_file(request: Request) -> Response:
    """A file of the page. Needs no token: it is the same in every copy of lorad."""
    path = request.url.path
    if path not in PAGE_FILES:
        raise Refusal(404, "the page has no such file; it begins at /")
    return Response(
        content(path),
        media_type=MEDIA_TYPES[PAGE_FILES[path].suffix],
        headers={
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        },
    )
