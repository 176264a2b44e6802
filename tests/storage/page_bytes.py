"""Every byte of an SQLite file accounted for, straight from the file format's description."""

import struct
from collections import Counter
from pathlib import Path

_LEAF_TABLE, _INNER_TABLE, _LEAF_INDEX, _INNER_INDEX = 13, 5, 10, 2


def unused_bytes(path: Path) -> Counter[str]:
    """``{kind of place: bytes there that are not zero}`` of what belongs to nothing."""
    return _File(path.read_bytes()).account()


class _File:
    def __init__(self, data: bytes) -> None:
        self.data = data
        [size] = struct.unpack_from(">H", data, 16)
        self.page_size = 65536 if size == 1 else size
        self.usable = self.page_size - data[20]
        self.found: Counter[str] = Counter()

    def account(self) -> Counter[str]:
        free = self._free_list()
        seen = set(free)
        for page in range(1, len(self.data) // self.page_size + 1):
            start = self._start(page)
            header = 100 if page == 1 else 0
            if page not in free and self.data[start + header] in (2, 5, 10, 13):
                seen.add(page)
                self._tree_page(start, header, seen)
        rest = set(range(1, len(self.data) // self.page_size + 1)) - seen
        assert not rest, f"pages {rest} belong to nothing"
        return +self.found

    def _start(self, page: int) -> int:
        return (page - 1) * self.page_size

    def _note(self, place: str, data: bytes | bytearray) -> None:
        self.found[place] += len(data) - data.count(0)

    def _free_list(self) -> set[int]:
        pages: set[int] = set()
        [trunk] = struct.unpack_from(">I", self.data, 32)
        while trunk:
            start = self._start(trunk)
            following, leaves = struct.unpack_from(">II", self.data, start)
            numbers = struct.unpack_from(f">{leaves}I", self.data, start + 8)
            for leaf in numbers:
                self._note(
                    "free page", self.data[self._start(leaf) : self._start(leaf) + self.page_size]
                )
            # Behind the list lie numbers of pages that were in it: no text.
            rest = self.data[start + 8 + 4 * leaves : start + self.page_size]
            old = struct.unpack(f">{len(rest) // 4}I", rest)
            if any(number * self.page_size > len(self.data) for number in old):
                self._note("end of a free list page", rest)
            pages |= {trunk, *numbers}
            trunk = following
        return pages

    def _tree_page(self, start: int, header: int, seen: set[int]) -> None:
        data = self.data
        kind = data[start + header]
        hole, cells, content, _ = struct.unpack_from(">HHHB", data, start + header + 1)
        first = header + (12 if kind in (_INNER_TABLE, _INNER_INDEX) else 8)
        pointers = struct.unpack_from(f">{cells}H", data, start + first)
        content = content or 65536
        self._note("middle", data[start + first + 2 * cells : start + content])
        rest = bytearray(data[start + content : start + self.usable])
        while hole:
            following, size = struct.unpack_from(">HH", data, start + hole)
            self._note("hole", data[start + hole + 4 : start + hole + size])
            rest[hole - content : hole - content + size] = bytes(size)
            hole = following
        for pointer in pointers:
            end = max(self._cell(kind, start + pointer, seen) - start, pointer + 4)
            rest[pointer - content : end - content] = bytes(end - pointer)
        self._note("between cells", rest)

    def _cell(self, kind: int, position: int, seen: set[int]) -> int:
        """Where the cell ends; what its overflow pages don't use is noted."""
        if kind in (_INNER_TABLE, _INNER_INDEX):
            position += 4
        if kind == _INNER_TABLE:
            return self._number(position)[1]
        size, position = self._number(position)
        if kind == _LEAF_TABLE:
            _, position = self._number(position)
            most = self.usable - 35
        else:
            most = (self.usable - 12) * 64 // 255 - 23
        if size <= most:
            return position + size
        least = (self.usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (self.usable - 4)
        local = local if local <= most else least
        [page] = struct.unpack_from(">I", self.data, position + local)
        left = size - local
        while left > 0:
            seen.add(page)
            start = self._start(page)
            used = min(left, self.usable - 4)
            self._note(
                "end of an overflow page", self.data[start + 4 + used : start + self.page_size]
            )
            left -= used
            [page] = struct.unpack_from(">I", self.data, start)
        return position + local + 4

    def _number(self, position: int) -> tuple[int, int]:
        value = 0
        for place in range(9):
            byte = self.data[position + place]
            if place == 8:
                return (value << 8) | byte, position + 9
            value = (value << 7) | (byte & 127)
            if byte < 128:
                return value, position + place + 1
        raise AssertionError
