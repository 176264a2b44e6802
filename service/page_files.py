"""The page at ``/``: its files, which lie beside this one in ``page`` and are sent as they are."""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "page"

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

PAGE_FILES = {
    "/" if file.name == "index.html" else f"/page/{file.name}": file
    for file in sorted(FOLDER.iterdir())
    if file.suffix in MEDIA_TYPES
}
"""The files by the paths at which they are answered, without a token."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


@cache
def content(path: str) -> bytes:
    """The bytes of the file at a path of `PAGE_FILES`."""
    return PAGE_FILES[path].read_bytes()
