"""GET /docs and GET /openapi.json: the API for people and for programs to read.

Making the document takes long on a phone, so both do it in a thread and not in the event loop.
"""

from functools import lru_cache

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import HTMLResponse, JSONResponse

router = APIRouter()


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The page of the app's OpenAPI document. Needs no token: it tells what every copy tells."""
    return _page(request.app)


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """The app's OpenAPI document."""
    return JSONResponse(request.app.openapi())


@lru_cache(maxsize=1)
def _page(app: FastAPI) -> HTMLResponse:
    from service.docs_page import content_security_policy, render  # few ask, and jinja2 is large

    page = render(app.openapi())
    return HTMLResponse(
        page,
        headers={
            "Content-Security-Policy": content_security_policy(page),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        },
    )
