import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.models.gguf import GGUFError, GGUFFile
from trainer.models.gguf_blocks import BLOCKS, TYPE_NAMES, dequantize

gguf = pytest.importorskip("gguf")


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return (
        string(name)
        + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        + struct.pack("<IQ", kind, offset)
    )


def file_bytes(
    pairs: list[bytes], tensors: list[bytes], data: bytes = b"", version: int = 3
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


@pytest.mark.slow
def test_reads_smollm2_as_the_gguf_package_reads_it(smollm2_gguf: Path) -> None:
    """Every key, every tensor's shape, every dequantised value (Q4_1, Q8_0, F32): exactly equal."""
    ours = GGUFFile(smollm2_gguf)
    theirs = gguf.GGUFReader(smollm2_gguf)
    fields = {key: f.contents() for key, f in theirs.fields.items() if not key.startswith("GGUF.")}
    assert dict(ours.metadata) == fields
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for expected in theirs.tensors:
        found = ours.load(expected.name)
        values = gguf.quants.dequantize(expected.data, expected.tensor_type)
        assert found.dtype == np.float32
        assert np.array_equal(found, values), expected.name


@pytest.mark.parametrize("kind", BLOCKS)
def test_dequantises_any_blocks_exactly_as_the_gguf_package(kind: int) -> None:
    """Random bits: every nibble, negative and subnormal scales; NaN scales are kept as NaN."""
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] == BLOCKS[kind]
    _, size = BLOCKS[kind]
    data = np.random.default_rng(kind).integers(0, 256, (512, size), dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        found = dequantize(data.reshape(-1), kind)
        expected = gguf.quants.dequantize(data, gguf.GGMLQuantizationType(kind))
    assert np.array_equal(found, expected.reshape(-1), equal_nan=True)


def test_the_names_of_types_are_ggmls() -> None:
    for number, name in TYPE_NAMES.items():
        assert gguf.GGMLQuantizationType(number).name == name


def test_reads_what_the_gguf_package_writes(tmp_path: Path) -> None:
    """All scalar and array types, and the tensor types we read, quantised by the package itself."""
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values: dict[str, tuple[str, Any]] = {
        "uint8": ("add_uint8", 255),
        "int8": ("add_int8", -128),
        "uint16": ("add_uint16", 65535),
        "int16": ("add_int16", -32768),
        "uint32": ("add_uint32", 2**32 - 1),
        "int32": ("add_int32", -(2**31)),
        "uint64": ("add_uint64", 2**64 - 1),
        "int64": ("add_int64", -(2**63)),
        "float32": ("add_float32", 0.5),
        "float64": ("add_float64", 0.1),
        "bool": ("add_bool", True),
        "string": ("add_string", "é日本\n"),
        "strings": ("add_array", ["", "a", "日"]),
        "numbers": ("add_array", [1, -2, 3]),
        "flags": ("add_array", [True, False]),
        "floats": ("add_array", [0.5, -1.5]),
    }
    for key, (method, value) in values.items():
        getattr(writer, method)(key, value)
    random = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    expected = {}
    for kind in BLOCKS:
        quantised = gguf.quants.quantize(random, gguf.GGMLQuantizationType(kind))
        expected[f"t{kind}"] = gguf.quants.dequantize(quantised, gguf.GGMLQuantizationType(kind))
        writer.add_tensor(f"t{kind}", quantised, raw_dtype=gguf.GGMLQuantizationType(kind))
    writer.add_tensor("vector", random[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(path)
    assert {key: file.metadata[key] for key in values} == {k: v for k, (_, v) in values.items()}
    for name, matrix in expected.items():
        assert file.tensors[name].shape == (6, 64)
        assert np.array_equal(file.load(name), matrix)
    assert np.array_equal(file.load("vector"), random[0])


F32_DATA = np.arange(8, dtype="<f4").tobytes()
GOOD = file_bytes([pair("a", 4, struct.pack("<I", 7))], [tensor("t", (4, 2), 0, 0)], F32_DATA)


def test_a_small_file_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(GOOD)
    file = GGUFFile(path)
    assert dict(file.metadata) == {"a": 7}
    assert file.load("t").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


BAD = {
    "empty": (b"", "is empty"),
    "magic": (b"GGML" + GOOD[4:], r"begins with b'GGML'"),
    "version 2": (file_bytes([], [], version=2), "GGUF version is 2"),
    "big endian": (b"GGUF" + struct.pack(">I", 3) + GOOD[8:], "big-endian"),
    "tensor count": (
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0) + bytes(64),
        r"tensor count is \d+, more than",
    ),
    "key count": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 99) + bytes(64),
        "key count is 99, more than",
    ),
    "key length": (
        file_bytes([struct.pack("<Q", 2**63) + bytes(64)], []),
        r"length of key 0 is \d+, more than",
    ),
    "string length": (
        file_bytes([string("k") + struct.pack("<IQ", 8, 10**6)], []),
        "length of k is 1000000, more than",
    ),
    "key twice": (
        file_bytes([pair("k", 7, b"\1"), pair("k", 7, b"\1")], []),
        "key 'k' occurs twice",
    ),
    "value type": (file_bytes([pair("k", 13, bytes(8))], []), "k has value type 13"),
    "boolean": (file_bytes([pair("k", 7, b"\2")], []), "k is a boolean with the value 2"),
    "not UTF-8": (file_bytes([pair("k", 8, string(b"\xff\xfe"))], []), "k is not valid UTF-8"),
    "key not UTF-8": (file_bytes([string(b"\xff") + bytes(16)], []), "key 0 is not valid UTF-8"),
    "nested array": (
        file_bytes([pair("k", 9, struct.pack("<IQ", 9, 1) + bytes(32))], []),
        "k is an array of value type 9",
    ),
    "array count": (
        file_bytes([pair("k", 9, struct.pack("<IQ", 4, 2**40))], []),
        r"item count of k is \d+, more than",
    ),
    "string array count": (
        file_bytes([pair("k", 9, struct.pack("<IQ", 8, 2**40))], []),
        r"item count of k is \d+, more than",
    ),
    "alignment": (
        file_bytes([pair("general.alignment", 4, struct.pack("<I", 24))], []),
        r"general\.alignment is 24",
    ),
    "alignment 0": (
        file_bytes([pair("general.alignment", 4, struct.pack("<I", 0))], []),
        r"general\.alignment is 0",
    ),
    "alignment type": (
        file_bytes([pair("general.alignment", 8, string("32"))], []),
        r"general\.alignment is '32'",
    ),
    "dimensions 0": (file_bytes([], [tensor("t", (), 0, 0)]), "tensor t has 0 dimensions"),
    "dimensions 5": (
        file_bytes([], [tensor("t", (1,) * 5, 0, 0)], F32_DATA),
        "tensor t has 5 dimensions",
    ),
    "no values": (file_bytes([], [tensor("t", (0, 4), 0, 0)]), r"tensor t has the shape \[4, 0\]"),
    "Q4_K": (file_bytes([], [tensor("blk.0.x", (256,), 12, 0)]), "tensor blk.0.x has type Q4_K"),
    "unknown type": (
        file_bytes([], [tensor("t", (256,), 77, 0)]),
        "tensor t has type number 77; this version reads F32, F16",
    ),
    "block": (file_bytes([], [tensor("t", (33,), 8, 0)]), "tensor t: rows of 33 values"),
    "offset": (file_bytes([], [tensor("t", (4,), 0, 8)], bytes(64)), "tensor t: offset 8"),
    "data": (
        file_bytes([], [tensor("t", (4, 2), 0, 0)], F32_DATA[:-1]),
        r"tensor t: expected its data at bytes \d+ to \d+, the file ends at",
    ),
    "far offset": (
        file_bytes([], [tensor("t", (4, 2), 0, 2**62)], F32_DATA),
        "tensor t: expected its data",
    ),
    "overflowing shape": (
        file_bytes([], [tensor("t", (2**40, 2**40), 0, 0)], F32_DATA),
        "tensor t: expected its data",
    ),
    "tensor twice": (
        file_bytes([], [tensor("t", (8,), 0, 0), tensor("t", (8,), 0, 32)], F32_DATA * 2),
        "tensor 't' occurs twice",
    ),
    "overlap": (
        file_bytes([], [tensor("s", (16,), 0, 0), tensor("t", (8,), 0, 32)], F32_DATA * 2),
        "tensors s and t overlap",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_broken_file_is_refused_by_name(case: str, tmp_path: Path) -> None:
    data, named = BAD[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(GGUFError, match=named):
        GGUFFile(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    for size in range(1, len(GOOD)):
        path.write_bytes(GOOD[:size])
        with pytest.raises(GGUFError):
            GGUFFile(path)


@given(position=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255))
@settings(max_examples=400, deadline=None)
def test_a_changed_byte_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    """Never another exception, never a read outside the file."""
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(GOOD[:position] + bytes([byte]) + GOOD[position + 1 :])
    try:
        file = GGUFFile(path)
    except GGUFError:
        return
    for name in file.tensors:
        file.load(name)
