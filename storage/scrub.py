"""Zeros over the bytes of a database file that belong to nothing.

SQLite's ``secure_delete`` overwrites what is deleted where it lies. But rows move: when a page
overflows or two are merged, rows are rewritten elsewhere, and their old copies stay behind in the
page's unused middle, where no later deletion finds them. Measured with 10,000 rows: after 2,000
deletions and corrections a handful of deleted texts could still be read in the file.

    page of a b-tree, from its first byte to its last
    ┌────────┬────────────────┬───────── unused ─────────┬──────────────────────┐
    │ header │ cell pointers  │ (old copies may be here) │ cells, zeroed holes  │
    └────────┴────────────────┴──────────────────────────┴──────────────────────┘

SQLite reads and trusts no byte of that middle (https://www.sqlite.org/fileformat2.html, 1.6), so
zeros may be written there under readers, and a kill half-way breaks nothing. Everything else that
is unused (free pages, the ends of overflow pages, holes between cells) is zero by
``secure_delete`` already; the tests count every byte of the file to make sure.
"""

import os
import struct

_CHUNK_PAGES = 256
_MOST_PAGES = 1 << 25
"""In a smaller file no other kind of page can begin like a page of a b-tree: those begin with the
number of a page, big-endian."""

_FIRST_PAGE_HEADER = 100  # the file's own header, before the first page's
_HEADER_BYTES = {0x02: 12, 0x05: 12, 0x0A: 8, 0x0D: 8}  # by kind: inner and leaf, index and table
_PAGE_HEADER = struct.Struct(">BHHH")  # kind, first hole, number of cells, where cells begin
_POINTER_BYTES = 2
_LARGEST_ROOT = slice(52, 56)  # not zero: auto_vacuum, whose maps of pages begin like trees


class ScrubError(Exception):
    """The file is not as this program knows SQLite's files; the message says what was found."""


def scrub(descriptor: int) -> int:
    """Zero what is unused in the pages of the open database file, and put it on the disk.

    The caller sees to it that the write-ahead log is empty and that nobody writes meanwhile, and
    drops the writer's cache of pages afterwards: it holds the old bytes.

    Returns:
        How many pages had something there.

    Raises:
        ScrubError: the file is larger or other than expected; no more of it was changed.
    """
    page_size, usable = _sizes(os.pread(descriptor, _FIRST_PAGE_HEADER, 0))
    zeros = bytes(page_size)
    size = os.fstat(descriptor).st_size
    if size // page_size >= _MOST_PAGES:
        raise ScrubError(f"expected fewer than {_MOST_PAGES} pages, found {size // page_size}")
    cleaned = 0
    for start in range(0, size, _CHUNK_PAGES * page_size):
        chunk = os.pread(descriptor, _CHUNK_PAGES * page_size, start)
        for page in range(0, len(chunk), page_size):
            begin, end = _unused(chunk, page, usable, is_first=start + page == 0)
            if chunk[page + begin : page + end] != zeros[: end - begin]:
                os.pwrite(descriptor, zeros[: end - begin], start + page + begin)
                cleaned += 1
    if cleaned:
        os.fsync(descriptor)
    return cleaned


def _sizes(header: bytes) -> tuple[int, int]:
    """Bytes of a page, and how many of them SQLite uses."""
    if not header.startswith(b"SQLite format 3\0"):
        raise ScrubError("expected an SQLite database, found another kind of file")
    if any(header[_LARGEST_ROOT]):
        raise ScrubError("expected a database without auto_vacuum, found one with it")
    [size] = struct.unpack_from(">H", header, 16)
    page_size = 65536 if size == 1 else int(size)
    return page_size, page_size - header[20]


def _unused(chunk: bytes, page: int, usable: int, *, is_first: bool) -> tuple[int, int]:
    """From where to where in the page nothing is kept; an empty stretch for other kinds of page."""
    header = _FIRST_PAGE_HEADER if is_first else 0
    kind, _, cells, cells_begin = _PAGE_HEADER.unpack_from(chunk, page + header)
    if kind not in _HEADER_BYTES:
        return 0, 0
    begin = header + _HEADER_BYTES[kind] + _POINTER_BYTES * cells
    end = cells_begin or 65536
    if not begin <= end <= usable:
        raise ScrubError(f"a page's cells begin at {end}, expected between {begin} and {usable}")
    return begin, end
