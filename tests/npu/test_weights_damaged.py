"""The frozen-weight file: refuse what was not written by us, whatever is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.weight_layout import ALIGNMENT, DIGEST_BYTES, MAGIC
from npu.weights import (
    FrozenWeights,
    WeightFileError,
)
from tests.npu.weight_files import json_values, write, write_mixed

Header = dict[str, Any]


def rewrite_header(path: Path, change: Callable[[Header], object]) -> None:
    """Change the header of a file and let everything else, the length included, follow."""
    content = path.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[48 : 48 + length])
    data = content[-(-(48 + length) // ALIGNMENT) * ALIGNMENT :]
    replaced = change(header)
    text = replaced if isinstance(replaced, bytes) else json.dumps(header).encode()
    start = MAGIC + len(text).to_bytes(8, "little") + bytes(DIGEST_BYTES) + text
    path.write_bytes(start + bytes(-len(start) % ALIGNMENT) + data)


WRITERS = [write, write_mixed]


@pytest.mark.parametrize("writer", WRITERS)
def test_every_flipped_byte_is_noticed(tmp_path: Path, writer: Callable[[Path], str]) -> None:
    path = tmp_path / "w"
    writer(path)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(WeightFileError):
            FrozenWeights.open(path, verify=True)


@pytest.mark.parametrize("writer", WRITERS)
def test_every_truncation_is_noticed_without_hashing(
    tmp_path: Path, writer: Callable[[Path], str]
) -> None:
    path = tmp_path / "w"
    writer(path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(WeightFileError):
            FrozenWeights.open(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(WeightFileError, match="field 'data'"):
        FrozenWeights.open(path)


def test_a_short_file_names_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write(path)
    path.write_bytes(path.read_bytes()[:-150])
    with pytest.raises(WeightFileError, match=r"matrix 'second' scale: .* truncated"):
        FrozenWeights.open(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, (16 << 20) + 1, 100_000])
def test_an_absurd_header_length_is_refused_before_reading(tmp_path: Path, length: int) -> None:
    path = tmp_path / "w"
    write(path)
    content = bytearray(path.read_bytes())
    content[8:16] = length.to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(WeightFileError, match="header length"):
        FrozenWeights.open(path)


def test_another_file_is_refused_by_its_magic(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"GGUF" + bytes(500))
    with pytest.raises(WeightFileError, match=r"'magic': expected .* found b'GGUF"):
        FrozenWeights.open(path)


def set_in(*path: Any) -> Callable[[Header], object]:
    """A change that sets header[path[0]][path[1]]... to the last item."""

    def change(header: Header) -> None:
        *way, last, value = path
        for step in way:
            header = header[step]
        header[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in("version", 2), "'version'.*found 2"),
        (set_in("version", True), "'version'"),
        (set_in("metadata", []), "metadata: expected an object"),
        (set_in("matrices", {}), "matrices: expected a list"),
        (set_in("vectors", None), "vectors: expected a list"),
        (set_in("extra", 1), "header: expected an object with exactly"),
        (lambda header: header.pop("vectors"), "header: expected an object with exactly"),
        (set_in("matrices", 0, "name", ""), r"matrices\[0\] name"),
        (set_in("matrices", 1, "name", "first"), "matrix 'first': .*twice"),
        (set_in("matrices", 0, "format", "int5"), "matrix 'first' format: .*found 'int5'"),
        (set_in("matrices", 0, "format", "fp16"), "matrix 'first' codes bytes: expected 90"),
        (set_in("matrices", 0, "shape", [9, 6]), "matrix 'first' codes bytes: expected 54"),
        (set_in("matrices", 0, "shape", [9, 5, 1]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [9, True]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [-9, -5]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [0, 5]), "matrix 'first' shape"),
        (set_in("matrices", 0, "shape", [9.0, 5]), "matrix 'first' shape"),
        (set_in("matrices", 0, "scale", None), "matrix 'first' scale"),
        (set_in("matrices", 0, "codes", "offset", 64), "'first' codes: .*multiple of 128"),
        (set_in("matrices", 0, "codes", "offset", -128), "'first' codes offset"),
        (set_in("matrices", 0, "codes", "offset", 1.0), "'first' codes offset"),
        (set_in("matrices", 0, "codes", "offset", 2**80), "'first' codes: .*inside the file"),
        (set_in("matrices", 1, "codes", "offset", 0), "overlaps matrix 'first' codes"),
        (set_in("vectors", 0, "data", "offset", 128), "vector 'norm': .*overlaps"),
        (set_in("vectors", 0, "shape", [6]), "vector 'norm' bytes: expected 24"),
        (set_in("vectors", 0, "shape", [5, 1]), "vector 'norm' shape"),
        (lambda _: b"\xff\xfe{}", "field 'header'"),
        (lambda _: b"[]", "header: expected an object"),
        (lambda _: b"{", "field 'header'"),
        (lambda _: b'{"version":1,"version":1}', "twice"),
        (lambda _: b'{"version":NaN}', "NaN is not JSON"),
        (lambda _: b"[" * 200_000, "field 'header'"),
        (lambda _: b'{"version":' + b"9" * 5000 + b"}", "field 'header'"),
    ],
)
def test_a_wrong_header_is_refused_by_name(
    tmp_path: Path, change: Callable[[Header], object], message: str
) -> None:
    path = tmp_path / "w"
    write(path)
    rewrite_header(path, lambda header: None)
    FrozenWeights.open(path).close()
    rewrite_header(path, change)
    with pytest.raises(WeightFileError, match=message):
        FrozenWeights.open(path)


FOUR, FIVE, EIGHT = (("matrices", index) for index in range(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in(*FOUR, "shape", [3, 65]), "matrix 'four' shape: .*multiple of 32, found 65"),
        (set_in(*FOUR, "shape", [3, 96]), "matrix 'four' codes bytes: expected 144"),
        (set_in(*FOUR, "codes", "bytes", 192), "matrix 'four' codes bytes: expected 96"),
        (set_in(*FOUR, "scale", "bytes", 24), "matrix 'four' scale bytes: expected 12"),
        (set_in(*FOUR, "scale", None), "matrix 'four' scale"),
        (set_in(*FOUR, "scale", "offset", 0), "overlaps matrix 'four' codes"),
        (set_in(*FOUR, "format", "int4_min"), r"matrices\[0\]: .*'offset'"),
        (set_in(*FOUR, "format", "int8"), "matrix 'four' codes bytes: expected 192"),
        (set_in(*FOUR, "offset", {"offset": 0, "bytes": 12}), r"matrices\[0\]: .*exactly"),
        (set_in(*FIVE, "offset", None), "matrix 'five' offset"),
        (set_in(*FIVE, "offset", "bytes", 16), "matrix 'five' offset bytes: expected 4"),
        (set_in(*FIVE, "offset", "offset", 2**40), "'five' offset: .*inside the file"),
        (set_in(*FIVE, "offset", "offset", 1), "'five' offset: .*multiple of 128"),
        (set_in(*FIVE, "format", "int4"), r"matrices\[1\]: .*exactly"),
        (lambda header: header["matrices"][1].pop("offset"), r"matrices\[1\]: .*'offset'"),
        (set_in(*EIGHT, "offset", None), r"matrices\[2\]: .*exactly"),
    ],
)
def test_a_wrong_header_of_4_bits_is_refused_by_name(
    tmp_path: Path, change: Callable[[Header], object], message: str
) -> None:
    path = tmp_path / "w"
    write_mixed(path)
    rewrite_header(path, lambda header: None)
    FrozenWeights.open(path).close()
    rewrite_header(path, change)
    with pytest.raises(WeightFileError, match=message):
        FrozenWeights.open(path)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_header_of_other_json_never_gets_through(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Replace any one value of the header: refused, or a file whose every tensor can be read."""
    path = tmp_path_factory.mktemp("fuzz") / "w"
    data.draw(st.sampled_from(WRITERS))(path)

    def change(header: Header) -> None:
        place: Any = header
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if (
                not place[key]
                or not isinstance(place[key], dict | list)
                or data.draw(st.booleans())
            ):
                place[key] = data.draw(json_values)
                return
            place = place[key]

    rewrite_header(path, change)
    try:
        weights = FrozenWeights.open(path)
    except WeightFileError:
        return
    for matrix in weights.matrices.values():
        assert matrix.dequantize().shape == matrix.shape
    weights.close()
