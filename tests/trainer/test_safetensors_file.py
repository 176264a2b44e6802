import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trainer.safetensors_file import (
    SafetensorsError,
    SafetensorsFile,
    read_header,
    write_safetensors,
)

reference = pytest.importorskip("safetensors.numpy")

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name != "__metadata__"
)
TENSORS = st.dictionaries(
    NAMES,
    arrays.arrays(
        st.sampled_from([np.float32, np.float16]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    max_size=4,
)
METADATA = st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"])), max_size=3)


@given(tensors=TENSORS, metadata=METADATA)
@settings(max_examples=150, deadline=None)
def test_the_reference_library_reads_what_we_write(
    tmp_path_factory: pytest.TempPathFactory,
    tensors: dict[str, np.ndarray[Any, Any]],
    metadata: dict[str, str],
) -> None:
    path = tmp_path_factory.getbasetemp() / "ours.safetensors"
    write_safetensors(path, tensors, metadata)
    read = reference.load_file(path)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert read[name].shape == tensor.shape
        assert read[name].tobytes() == tensor.tobytes()
    assert dict(read_header(path).metadata) == metadata


@given(tensors=TENSORS)
@settings(max_examples=150, deadline=None)
def test_we_read_what_the_reference_library_writes(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, np.ndarray[Any, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "theirs.safetensors"
    reference.save_file(tensors, path, {"format": "pt"})
    file = SafetensorsFile(path)
    assert sorted(file.names()) == sorted(tensors)
    for name, tensor in tensors.items():
        assert file.shape(name) == tensor.shape
        found = file.load(name)
        assert found.dtype == np.float32
        assert np.array_equal(found, tensor.astype(np.float32), equal_nan=True)
    assert file.header.metadata["format"] == "pt"


def test_bfloat16_is_the_upper_half_of_a_float32(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    values = torch.randn(5, 7).to(torch.bfloat16)
    save_file({"w": values}, tmp_path / "bf16.safetensors")
    found = SafetensorsFile(tmp_path / "bf16.safetensors").load("w")
    assert np.array_equal(found, values.float().numpy())


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    one, two = np.ones((2, 3), np.float32), np.zeros(3, np.float16)
    write_safetensors(tmp_path / "a", {"b": one, "a": two}, {"x": "1", "w": "2"})
    write_safetensors(tmp_path / "b", {"a": two, "b": one}, {"w": "2", "x": "1"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_, np.dtype(">f4")])
def test_other_dtypes_are_not_written(dtype: Any, tmp_path: Path) -> None:
    with pytest.raises(SafetensorsError, match="tensor w has dtype"):
        write_safetensors(tmp_path / "w", {"w": np.zeros(3, dtype)}, {})
    assert not (tmp_path / "w").exists()


def entry(dtype: Any = "F32", shape: Any = None, offsets: Any = None) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "shape": [2] if shape is None else shape,
        "data_offsets": [0, 8] if offsets is None else offsets,
    }


def file_bytes(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


HOSTILE = {
    "empty file": (b"", "header's length"),
    "seven bytes": (bytes(7), "header's length"),
    "header beyond the file": ((2**63).to_bytes(8, "little") + b"{}", "header's length"),
    "header of nothing": (bytes(8), "header's length"),
    "not JSON": (file_bytes(b"{'a': 1}", b""), "no valid JSON"),
    "not UTF-8": (file_bytes(b'{"\xff": 1}', b""), "no valid JSON"),
    "deep JSON": (file_bytes(b"[" * 100_000, b""), "no valid JSON"),
    "a list": (file_bytes([], b""), "no JSON object"),
    "a name twice": (
        file_bytes(
            b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            bytes(4),
        ),
        "occurs twice",
    ),
    "metadata of numbers": (file_bytes({"__metadata__": {"a": 1}}, b""), "__metadata__"),
    "metadata no object": (file_bytes({"__metadata__": "a"}, b""), "__metadata__"),
    "entry no object": (file_bytes({"w": [1]}, b""), "tensor w: expected dtype"),
    "entry with more": (
        file_bytes({"w": entry() | {"x": 1}}, bytes(8)),
        "tensor w: expected dtype",
    ),
    "dtype": (file_bytes({"w": entry("I64", [1])}, bytes(8)), "tensor w has dtype 'I64'"),
    "dtype no text": (file_bytes({"w": entry(["F32"])}, bytes(8)), "tensor w has dtype"),
    "shape negative": (file_bytes({"w": entry(shape=[-2])}, bytes(8)), "tensor w: the shape"),
    "shape of floats": (file_bytes({"w": entry(shape=[2.0])}, bytes(8)), "tensor w: the shape"),
    "shape of booleans": (file_bytes({"w": entry(shape=[True])}, bytes(4)), "tensor w: the shape"),
    "shape endless": (file_bytes({"w": entry(shape=[1] * 99)}, bytes(4)), "tensor w: the shape"),
    "shape too big": (
        file_bytes({"w": entry(shape=[2**62, 4])}, bytes(8)),
        "tensor w: F32 of shape",
    ),
    "offsets three": (file_bytes({"w": entry(offsets=[0, 4, 8])}, bytes(8)), "data_offsets"),
    "offsets reversed": (file_bytes({"w": entry(offsets=[8, 0])}, bytes(8)), "tensor w: F32"),
    "offsets against shape": (file_bytes({"w": entry(shape=[3])}, bytes(8)), "needs 12 bytes"),
    "offsets outside": (
        file_bytes({"w": entry(), "x": entry(offsets=[8, 16])}, bytes(15)),
        "tensor x: its data ends at 16",
    ),
    "overlap": (
        file_bytes({"w": entry(), "x": entry(offsets=[4, 12])}, bytes(12)),
        "tensor x overlaps",
    ),
    "the same place": (file_bytes({"w": entry(), "x": entry()}, bytes(8)), "tensor x overlaps"),
    "gap": (
        file_bytes({"w": entry(), "x": entry(offsets=[12, 20])}, bytes(20)),
        "tensor x leaves a gap",
    ),
    "gap at the start": (file_bytes({"w": entry(offsets=[4, 12])}, bytes(12)), "leaves a gap"),
    "rest": (file_bytes({"w": entry()}, bytes(9)), "9 bytes of data, its header describes 8"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused_by_name(case: str, tmp_path: Path) -> None:
    data, named = HOSTILE[case]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(data)
    with pytest.raises(SafetensorsError, match=named):
        SafetensorsFile(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    write_safetensors(path, {"a": np.ones((2, 2), np.float32), "b": np.ones(3, np.float16)}, {})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SafetensorsError):
            SafetensorsFile(path)
