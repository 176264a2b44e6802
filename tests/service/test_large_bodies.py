"""Bodies beyond the limit, whole and in parts: refused, and never held in memory."""

from collections.abc import Iterator

import pytest

from tests.service.daemon import Daemon, resident_kb
from tests.service.test_bad_input import EXAMPLES, GOOD, fields, post_raw


@pytest.mark.parametrize("declared", [True, False], ids=["Content-Length", "chunked"])
def test_a_50_mb_body_is_refused_with_flat_memory(shared: Daemon, declared: bool) -> None:
    """VmHWM is the highest resident memory ever: a body held for an instant would show in it."""
    sent = 0
    piece = b'{"input": "' + b"x" * 65_525
    pieces = 50 * 1024 * 1024 // len(piece)

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(pieces):
            sent += len(piece)
            yield piece

    shared.http.post(EXAMPLES, json=GOOD)  # whatever is loaded lazily is loaded now
    post_raw(shared, EXAMPLES, b"[" + b" " * 2_000_000 + b"]")  # the largest body there may be
    before = resident_kb(shared.process.pid)
    headers = {"Content-Type": "application/json"}
    if declared:
        headers["Content-Length"] = str(pieces * len(piece))
    response = shared.http.post(EXAMPLES, content=body(), headers=headers)
    assert response.status_code == 413
    fields(response)
    grown = resident_kb(shared.process.pid) - before
    assert grown < 6 * 1024, f"{grown} kB for {sent} bytes"  # the limit itself is 2 MiB
    assert shared.http.get("/healthz").status_code == 200


def test_a_chunk_at_a_time_counts_too(shared: Daemon) -> None:
    """Two MiB and a byte, in chunks of which none is over the limit."""

    def body() -> Iterator[bytes]:
        for _ in range(32):
            yield b" " * 65_536
        yield b"x"

    response = shared.http.post(
        EXAMPLES, content=body(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
