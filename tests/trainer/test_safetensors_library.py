"""Our safetensors files and the library's are the same bytes, and what we accept it reads alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.test_safetensors_file import HOSTILE, NAMES, TENSORS, entry, file_bytes
from trainer.safetensors_file import (
    SafetensorsError,
    SafetensorsFile,
    read_header,
    write_safetensors,
)

library = pytest.importorskip("safetensors")
reference = pytest.importorskip("safetensors.numpy")

ONE_WORD = st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"])), max_size=1)
Tensors = dict[str, np.ndarray[Any, Any]]

# The library takes the last of two tensors of one name, ignores what it doesn't know in an entry,
# and has more number formats.
STRICTER = {"a name twice", "entry with more", "dtype"}


@given(tensors=TENSORS.filter(bool), metadata=ONE_WORD)
@settings(max_examples=100, deadline=None)
def test_we_write_the_librarys_bytes(
    tmp_path_factory: pytest.TempPathFactory, tensors: Tensors, metadata: dict[str, str]
) -> None:
    """Of more metadata than one entry the library's order is that of a hash map, and its file of
    no tensor at all has no valid header (0.8.0)."""
    path = tmp_path_factory.getbasetemp() / "same.safetensors"
    write_safetensors(path, tensors, metadata)
    assert path.read_bytes() == reference.save(tensors, metadata)


@given(tensors=TENSORS, metadata=ONE_WORD)
@settings(max_examples=100, deadline=None)
def test_every_tensor_lies_on_a_multiple_of_its_numbers_size(
    tmp_path_factory: pytest.TempPathFactory, tensors: Tensors, metadata: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "aligned.safetensors"
    write_safetensors(path, tensors, metadata)
    header = read_header(path)
    assert header.data_start % 8 == 0
    for name, info in header.tensors.items():
        assert info.begin % tensors[name].dtype.itemsize == 0


@pytest.mark.parametrize("padding", range(8))
def test_a_header_without_padding_is_read_as_the_library_reads_it(
    padding: int, tmp_path: Path
) -> None:
    numbers = np.arange(2, dtype=np.float32) + 0.5
    data = file_bytes({"w" * (padding + 1): entry()}, numbers.tobytes())
    path = tmp_path / "odd.safetensors"
    path.write_bytes(data)
    file = SafetensorsFile(path)
    (name,) = file.names()
    assert np.array_equal(file.load(name), reference.load(data)[name])


@given(tensors=TENSORS, data=st.data())
@settings(max_examples=400, deadline=None)
def test_what_we_accept_of_a_damaged_file_the_library_reads_alike(
    tmp_path_factory: pytest.TempPathFactory, tensors: Tensors, data: st.DataObject
) -> None:
    content = bytearray(reference.save(tensors, {"format": "pt"}))
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        place = data.draw(st.integers(0, header - 1), label="place")
        content[place] = data.draw(st.sampled_from(b'{}[]":,.0123456789 -eEFBu\\'), label="byte")
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(content)
    try:
        file = SafetensorsFile(path)
    except SafetensorsError:
        return
    theirs = dict(library.deserialize(bytes(content)))
    assert sorted(theirs) == sorted(file.names())
    for name, info in file.header.tensors.items():
        start = file.header.data_start
        assert theirs[name]["shape"] == list(info.shape)
        assert theirs[name]["dtype"] == info.dtype
        assert theirs[name]["data"] == content[start + info.begin : start + info.end]


@pytest.mark.parametrize("case", sorted(HOSTILE.keys() - STRICTER))
def test_the_library_refuses_it_too(case: str) -> None:
    with pytest.raises(library.SafetensorError):
        reference.load(HOSTILE[case][0])


def test_a_header_beyond_the_librarys_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as file:
        file.write((100_000_001).to_bytes(8, "little") + b"{")
        file.truncate(200_000_000)  # a hole, no bytes on the disk
    with pytest.raises(SafetensorsError, match="header's length is 100000001"):
        SafetensorsFile(path)
    with pytest.raises(library.SafetensorError):
        reference.load_file(path)


@pytest.mark.parametrize(
    "dtype", [np.float64, np.int64, np.int32, np.int16, np.int8, np.uint8, bool]
)
def test_the_librarys_other_number_formats_are_refused_by_name(dtype: Any, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    reference.save_file({"w": np.zeros(3, dtype)}, path)
    with pytest.raises(
        SafetensorsError, match=r"tensor w has dtype '[A-Z0-9]+'; this version reads"
    ):
        SafetensorsFile(path)
