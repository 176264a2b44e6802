"""GGUF's 4-bit tensors kept: what we store means what the file means, but for stated roundings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.frozen_matrix import FrozenMatrix
from npu.quantize_blocks import unpack
from npu.weights import FrozenWeights, write_frozen_weights
from tests.trainer.test_gguf_model import small_model
from trainer.models.gguf import GGUFError, GGUFFile
from trainer.models.gguf_blocks import BLOCKS, Q4_0, Q4_1, dequantize
from trainer.models.gguf_model import read_gguf_model
from trainer.models.gguf_native import NATIVE, repack
from trainer.weight_plan import plan_formats

gguf = pytest.importorskip("gguf")

Array = np.ndarray[Any, Any]

# Half an ulp, relative, and half the smallest number, of fp16.
U, H = 2.0**-11, 2.0**-25

halves = st.one_of(
    st.floats(width=16, min_value=-60, max_value=60),
    st.sampled_from([0.0, -0.0, 2.0**-24, -(2.0**-24), 2.0**-14, 0.001, -0.001]),
)


def raw(kind: int, N: int, K: int, d: Array, m: Array, nibbles: Array) -> Array:
    """A tensor's bytes by ggml's description; nibbles [N, K] of 0..15, d and m [N, K / 32]."""
    values = nibbles.reshape(N, K // 32, 2, 16)
    packed = (values[:, :, 0] | values[:, :, 1] << 4).astype(np.uint8)
    heads = [d, m] if kind == Q4_1 else [d]
    columns = [h.astype("<f2").reshape(N, K // 32, 1).view(np.uint8) for h in heads]
    return np.concatenate([*columns, packed], axis=2).reshape(-1)


def effective(data: Array, kind: int, N: int, K: int) -> Array:
    blocks = repack(data, kind, N, K)
    matrix = FrozenMatrix("m", NATIVE[kind], blocks.codes, blocks.scale, blocks.offset)
    return matrix.dequantize().astype(np.float64)


def bound(kind: int, d: Array, m: Array, nibbles: Array) -> Array:
    """The most that fp16 roundings can change, from gguf_native's docstring."""
    scale, minimum = (
        np.repeat(part.astype(np.float16).astype(np.float64), 32, axis=1) for part in (d, m)
    )
    product = np.abs(scale * (nibbles.astype(np.float64) - 8))
    if kind == Q4_0:
        return U * product + H
    value = np.abs(scale * nibbles + minimum)
    return (1 + U) * (U * (product + np.abs(minimum + 8 * scale) + value) + 3 * H)


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from([Q4_0, Q4_1]),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    data=st.data(),
)
def test_repacked_values_are_ggufs_within_the_stated_roundings(
    kind: int, shape: tuple[int, int], data: st.DataObject
) -> None:
    N, blocks = shape
    numbers = st.lists(halves, min_size=N * blocks, max_size=N * blocks)
    d = np.array(data.draw(numbers)).reshape(N, blocks)
    m = np.array(data.draw(numbers)).reshape(N, blocks)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    nibbles = random.integers(0, 16, (N, blocks * 32))
    nibbles[:, ::7] = data.draw(st.sampled_from([0, 15]))  # code -8, code 7
    tensor = raw(kind, N, blocks * 32, d, m, nibbles)
    ours = effective(tensor, kind, N, blocks * 32)
    for oracle in (
        dequantize(tensor, kind),
        gguf.quants.dequantize(
            tensor.reshape(-1, BLOCKS[kind][1]), gguf.GGMLQuantizationType(kind)
        ),
    ):
        off = np.abs(ours - oracle.reshape(ours.shape).astype(np.float64))
        assert (off <= bound(kind, d, m, nibbles)).all()


@pytest.mark.parametrize("kind", [Q4_0, Q4_1])
def test_every_code_lands_in_its_own_column(kind: int) -> None:
    """Scales that are powers of two round nothing, so a misplaced nibble shows as itself."""
    random = np.random.default_rng(0)
    nibbles = random.integers(0, 16, (5, 96))
    d = 2.0 ** random.integers(-4, 4, (5, 3)) * random.choice([-1, 1], (5, 3))
    m = random.integers(-4, 4, (5, 3)) * 1.0
    tensor = raw(kind, 5, 96, d, m, nibbles)
    blocks = repack(tensor, kind, 5, 96)
    assert np.array_equal(unpack(blocks.codes), nibbles - 8)
    assert blocks.scale is not None
    assert np.array_equal(blocks.scale, d.astype(np.float16))
    exact = dequantize(tensor, kind).reshape(5, 96)
    assert np.array_equal(effective(tensor, kind, 5, 96), exact)


@pytest.mark.parametrize(
    ("kind", "d", "m"),
    [
        *((kind, d, 0) for kind in (Q4_0, Q4_1) for d in (np.nan, np.inf, -np.inf, 8200, -8200)),
        (Q4_1, 1, np.nan),
        (Q4_1, 1, -np.inf),
        (Q4_1, 4000, 40000),
    ],
)
def test_a_block_that_is_no_number_is_refused_by_its_place(kind: int, d: float, m: float) -> None:
    scale, minimum = np.ones((3, 2)), np.zeros((3, 2))
    repack(raw(kind, 3, 64, scale, minimum, np.zeros((3, 64), np.int64)), kind, 3, 64)
    scale[2, 1], minimum[2, 1] = d, m
    tensor = raw(kind, 3, 64, scale, minimum, np.zeros((3, 64), np.int64))
    with pytest.raises(ValueError, match=r"row 2, columns 32 to 63"):
        repack(tensor, kind, 3, 64)


def wide(keys: dict[str, Any], tensors: dict[str, Array]) -> None:
    """The small model with random matrices whose columns are whole blocks: 64 and 96 of them."""
    keys |= {"llama.embedding_length": 64, "llama.feed_forward_length": 96}
    random = np.random.default_rng(0)
    sizes = {8: 64, 12: 96, 4: 32}
    for name, values in tensors.items():
        shape = tuple(sizes[size] for size in values.shape)
        shape = (4, 64) if name.startswith("token_embd") else shape
        tensors[name] = random.standard_normal(shape).astype(np.float32)


def test_rows_and_fused_parts_are_in_the_order_of_the_values(tmp_path: Path) -> None:
    """q and k are un-permuted in codes, scale and offset; `load` is compared with transformers."""
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    for kind, format in NATIVE.items():
        kinds = {f"blk.0.{name}.weight": kind for name in names}
        model = read_gguf_model(small_model(tmp_path / "m.gguf", wide, kinds))
        sources = {source.name: source for source in model.matrices()}
        assert sources.pop("embed_tokens").native is None
        for source in sources.values():
            assert source.native == format
            assert source.load_native is not None
            blocks = source.load_native()
            matrix = FrozenMatrix("m", format, blocks.codes, blocks.scale, blocks.offset)
            expected = source.load()
            assert matrix.shape == source.shape
            # Roundings are below 1e-2 here; two rows differ by more than 1 somewhere.
            assert np.abs(matrix.dequantize() - expected).max() < 1e-2, source.name


def test_parts_of_different_formats_are_not_kept(tmp_path: Path) -> None:
    kinds = {f"blk.0.{name}.weight": Q4_0 for name in ("attn_q", "attn_k", "ffn_gate", "ffn_up")}
    kinds |= {"blk.0.attn_v.weight": Q4_1, "blk.0.ffn_down.weight": 8}
    model = read_gguf_model(small_model(tmp_path / "m.gguf", wide, kinds))
    formats = plan_formats("native", model.matrices())
    assert formats == {
        "layers.0.self_attn.qkv_proj": "int8",
        "layers.0.self_attn.o_proj": "int8",
        "layers.0.mlp.gate_up_proj": "int4",
        "layers.0.mlp.down_proj": "int8",
        "embed_tokens": "int8",
    }


def test_a_damaged_block_is_refused_by_its_tensor(tmp_path: Path) -> None:
    kinds = {"blk.0.ffn_down.weight": Q4_1}
    path = small_model(tmp_path / "m.gguf", wide, kinds)
    tensor = GGUFFile(path).tensors["blk.0.ffn_down.weight"]
    data = bytearray(path.read_bytes())
    data[tensor.start + 20 : tensor.start + 22] = np.array([np.nan], "<f2").tobytes()
    path.write_bytes(data)
    (source,) = [s for s in read_gguf_model(path).matrices() if s.native]
    assert source.load_native is not None
    with pytest.raises(GGUFError, match=r"tensor blk\.0\.ffn_down\.weight: .* Q4_1 .* row 0"):
        source.load_native()


@pytest.mark.emulator
@pytest.mark.parametrize("kind", [Q4_0, Q4_1])
def test_the_npu_multiplies_by_ggufs_weights(smollm2_gguf: Path, kind: int) -> None:
    """SmolLM2's first v_proj, read out of the HTP through both directions, beside GGUF's values.

    Measured, as a Frobenius error: Q4_0 6.1e-5, all of it our own roundings; Q4_1 2.36e-4, of which
    our own are 2.24e-4.
    """
    torch = pytest.importorskip("torch")
    from npu.engine_options import EngineOptions
    from npu.engines.create import create_engine

    file = GGUFFile(smollm2_gguf)
    tensor = file.tensors["blk.0.attn_v.weight"]
    N, K = tensor.shape
    type_ = gguf.GGMLQuantizationType(kind)
    data = file.raw(tensor.name)
    if kind != tensor.type:
        data = gguf.quants.quantize(file.load(tensor.name), type_).reshape(-1)
    expected = gguf.quants.dequantize(data.reshape(-1, BLOCKS[kind][1]), type_).reshape(N, K)
    blocks = repack(data, kind, N, K)
    assert blocks.scale is not None
    codes = unpack(blocks.codes)
    assert (codes == -8).any()
    if kind == Q4_0:  # Q4_1's scales are never negative
        assert (blocks.scale < 0).any()
    matrix = FrozenMatrix("v", NATIVE[kind], blocks.codes, blocks.scale, blocks.offset)
    options = EngineOptions(form="table", buckets=(K,), threads=1)
    engine = create_engine("qnn", {"v": matrix}, options)
    try:
        forwards = engine.forward("v", torch.eye(K)).numpy().T
        backwards = engine.input_gradient("v", torch.eye(N)).numpy()
    finally:
        engine.close()
    assert np.array_equal(forwards, backwards)
    error = np.linalg.norm(forwards - expected) / np.linalg.norm(expected)
    assert error < {Q4_0: 7e-5, Q4_1: 2.6e-4}[kind]


@pytest.mark.slow
def test_smollm2s_weights_are_the_files(smollm2_gguf: Path, tmp_path: Path) -> None:
    """All 106 million 4-bit weights, through the written file. `load` equals the gguf package's.

    Measured: 63.8 % equal to the last bit of fp32, 94.6 % to fp16 of the file's value; Frobenius
    2.19e-4 (fp16 rounding alone: 1.92e-4); at most 6.1e-4 of a row's largest.
    """
    model = read_gguf_model(smollm2_gguf)
    sources = [source for source in model.matrices() if source.native]
    assert {source.native for source in sources} == {"int4_min"}
    assert len(sources) == 30 * 4
    write_frozen_weights(tmp_path / "w", {}, sources, {}, format=plan_formats("native", sources))
    kept = FrozenWeights.open(tmp_path / "w").matrices
    equal = equal_halves = count = 0
    error = size = worst = 0.0
    for source in sources:
        expected = source.load()
        found = kept[source.name].dequantize()
        off = np.abs(found - expected)
        equal += int((off == 0).sum())
        equal_halves += int((found == expected.astype(np.float16)).sum())
        count += off.size
        error += float(np.square(off, dtype=np.float64).sum())
        size += float(np.square(expected, dtype=np.float64).sum())
        worst = max(worst, float((off.max(1) / np.abs(expected).max(1)).max()))
    assert equal / count > 0.63
    assert equal_halves / count > 0.94
    assert (error / size) ** 0.5 < 2.3e-4
    assert worst < 6.5e-4


@pytest.mark.slow
def test_smollm2_kept_computes_what_transformers_computes(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    """The logits of the whole model: `transformers` un-permutes, names and dequantises on its own.

    On 1,279 tokens of prose, measured: with the embedding in fp16, as here, 2.0e-3; as `native` has
    it, in int8, 3.1e-2 (0.003 nats a token); with all in int8 8.3e-2 (0.009 nats).
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from npu.engine_options import EngineOptions
    from npu.opening import open_engine
    from trainer.models.decoder import Decoder
    from trainer.packing import SegmentTree

    model = read_gguf_model(smollm2_gguf)
    sources = model.matrices()
    formats = plan_formats("native", sources) | {"embed_tokens": "fp16"}
    path = tmp_path / "w"
    write_frozen_weights(path, {}, sources, model.vectors(), format=formats)
    weights = FrozenWeights.open(path)
    decoder = Decoder(
        model.config, weights, open_engine(weights, "torch_cpu", EngineOptions(threads=1))
    )
    text = "Once upon a time, in a small village by the sea, there lived a fisherman."
    ids = model.tokenizer.encode(text).ids
    tree = SegmentTree()
    tree.add(ids)
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        str(smollm2_gguf.parent), gguf_file=smollm2_gguf.name, dtype="float32"
    ).eval()
    with torch.no_grad():
        ours = decoder.logits(decoder.hidden(tree.pack()))
        expected = reference(torch.tensor([ids])).logits[0]
    spread = (expected - expected.mean(-1, keepdim=True)).norm()
    assert (ours - expected).norm() < 5e-3 * spread
