"""Products on several threads: right, the same bits every time, and nothing left behind."""

import gc
import subprocess
import sys
import threading
from typing import get_args

import numpy as np
import pytest
import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines import fp32_tile
from npu.engines.create import create_engine
from npu.engines.fp32_tile import Fp32Tile, StoredWeight
from npu.engines.torch_cpu import TorchCpuEngine
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.quantize import quantize
from npu.quantize_blocks import pack
from npu.weight_layout import BLOCK, WeightFormat
from tests.npu.conftest import random_weight

SHAPES = {"several tiles": (1103, 544), "uneven": (331, 160), "few rows": (2, 20_000)}
"""(N, K), shared among threads; 17 and 5 blocks of columns, which neither 2 nor 3 threads divide;
fewer rows than threads."""


def frozen(format: WeightFormat, shape: str) -> FrozenMatrix:
    quantized = quantize(random_weight(*SHAPES[shape], seed=3), format)
    return FrozenMatrix(shape, format, quantized.codes, quantized.scale, quantized.offset)


def make_engine(matrix: FrozenMatrix, threads: int) -> Engine:
    return create_engine("torch_cpu", {"m": matrix}, EngineOptions(threads=threads))


def run(engine: Engine, direction: Direction, a: torch.Tensor) -> torch.Tensor:
    return engine.forward("m", a) if direction == "forward" else engine.input_gradient("m", a)


def operand(matrix: FrozenMatrix, direction: Direction, M: int) -> torch.Tensor:
    width = matrix.shape[direction == "forward"]
    return torch.randn(M, width, generator=torch.Generator().manual_seed(M))


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lorad-torch_cpu")}


@pytest.fixture(autouse=True)
def _threads_of_others_are_over() -> None:
    gc.collect()
    for thread in our_threads():
        thread.join(20)


@pytest.mark.parametrize("direction", get_args(Direction))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format", get_args(WeightFormat))
def test_products_equal_float64_however_many_threads(
    format: WeightFormat, shape: str, direction: Direction
) -> None:
    """By the size of a product in which nothing cancels; two outputs may cancel."""
    matrix = frozen(format, shape)
    W = matrix.dequantize().astype(np.float64)
    tolerance = 1e-6 if shape != "few rows" else 1e-5  # sums of 20 000
    for threads in (1, 2, 3):
        engine = make_engine(matrix, threads)
        for M in (1, 7, 64, 300):
            a = operand(matrix, direction, M)
            expected = a.double().numpy() @ (W.T if direction == "forward" else W)
            error = np.linalg.norm(run(engine, direction, a).numpy() - expected)
            assert error < tolerance * np.linalg.norm(a) * np.linalg.norm(W) / a.shape[1] ** 0.5
        engine.close()


@pytest.mark.parametrize("direction", get_args(Direction))
@pytest.mark.parametrize("format", ["int8", "int4_min"])
def test_the_same_bits_again_and_from_another_engine(
    format: WeightFormat, direction: Direction
) -> None:
    """Whatever lay in the tiles before, and whichever thread was faster."""
    matrix = frozen(format, "several tiles")
    other = frozen("int4", "uneven")
    engine = create_engine("torch_cpu", {"m": matrix, "other": other}, EngineOptions(threads=2))
    a = operand(matrix, direction, 65)
    first = run(engine, direction, a)
    kept = first.clone()
    for rows in (1, 200):
        engine.forward("other", operand(other, "forward", rows))
        run(engine, direction, operand(matrix, direction, rows))
        assert torch.equal(run(engine, direction, a), first)
    assert torch.equal(run(make_engine(matrix, 2), direction, a), first)
    assert torch.equal(first, kept), "a result must not be overwritten by the next product"


def test_weights_of_one_name_are_told_apart() -> None:
    """Calibration computes with another weight of the same name, and lets go of it."""
    engine = make_engine(frozen("int8", "uneven"), 2)
    x = operand(engine.matrices["m"], "forward", 3)
    before = engine.forward("m", x)
    swapped = frozen("int4", "uneven")
    expected = x @ torch.from_numpy(swapped.dequantize()).t()
    assert torch.allclose(engine.compute(swapped, "forward", x), expected, atol=1e-5)
    assert torch.equal(engine.forward("m", x), before)


ALL_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL_HALVES[np.isfinite(ALL_HALVES)]


@pytest.mark.parametrize("offsets", [None, 0, 1, 2])
def test_4_bit_tiles_are_the_dequantized_weights_bit_for_bit(offsets: int | None) -> None:
    """Every code with every finite scale: both signs, zeros, subnormal and beyond fp16; of the sums
    with an offset some are infinite and some, of two infinities, are no number."""
    blocks = 62
    scale = FINITE.reshape(-1, blocks)
    generator = np.random.default_rng(offsets)
    codes = generator.integers(-8, 8, (len(scale), blocks, BLOCK))
    codes[:, :, :16] = generator.permuted(np.broadcast_to(np.arange(-8, 8), (1024, 62, 16)), axis=2)
    packed = pack(codes.reshape(len(scale), -1))
    offset = None if offsets is None else generator.permutation(FINITE).reshape(scale.shape)
    format: WeightFormat = "int4" if offset is None else "int4_min"
    matrix = FrozenMatrix("m", format, packed, scale, offset)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = matrix.dequantize()
    weight, tile = StoredWeight.of(matrix), Fp32Tile()
    parts = [(slice(0, 7), slice(0, 1984)), (slice(7, 900), slice(32, 1024))]
    for rows, columns in [*parts, *parts, (slice(0, 1024), slice(0, 1984))]:
        filled = tile.fill(weight, rows, columns).numpy()
        wanted = expected[rows, columns]
        same = filled.view(np.int32) == wanted.view(np.int32)
        assert (same | (np.isnan(filled) & np.isnan(wanted))).all()
    assert np.isinf(expected).any()


def test_fp32_exists_a_tile_at_a_time() -> None:
    matrix = frozen("int4_min", "several tiles")
    engine = make_engine(matrix, 2)
    assert isinstance(engine, TorchCpuEngine)
    run(engine, "forward", operand(matrix, "forward", 5))
    run(engine, "input_gradient", operand(matrix, "input_gradient", 5))
    held = [value for tile in engine._tiles for value in vars(tile).values()]
    sizes = [value.numel() for value in held if isinstance(value, torch.Tensor)]
    assert len(sizes) == 2 * 2
    assert min(sizes) > 0
    assert max(sizes) <= fp32_tile.TILE_ELEMENTS
    assert matrix.shape[0] * matrix.shape[1] > 2 * fp32_tile.TILE_ELEMENTS
    engine.close()


@pytest.mark.parametrize("callers", [1, 2])
def test_torch_uses_as_many_threads_as_before(callers: int) -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(callers)
    try:
        engine = make_engine(frozen("int8", "uneven"), 3)
        engine.forward("m", torch.ones(300, 160))
        assert len(our_threads()) == 2
        assert torch.get_num_threads() == callers
        later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert seen == [callers]
    finally:
        torch.set_num_threads(before)


def test_close_ends_the_threads_and_so_does_letting_go() -> None:
    for let_go in (False, True):
        engine = make_engine(frozen("int8", "uneven"), 3)
        engine.forward("m", torch.ones(1, 160))
        threads = our_threads()
        assert len(threads) == 2
        if let_go:
            del engine
            gc.collect()
        else:
            engine.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


def test_a_small_matrix_needs_no_thread() -> None:
    quantized = quantize(random_weight(96, 64, seed=0), "int8")
    matrix = FrozenMatrix("small", "int8", quantized.codes, quantized.scale)
    make_engine(matrix, 3).forward("m", torch.ones(64, 64))
    assert not our_threads()


PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import torch
from npu.engine_options import EngineOptions
from npu.engines import torch_cpu
from npu.engines.create import create_engine
from npu.frozen_matrix import FrozenMatrix

torch.set_num_threads(1)  # a forked child of a process with OpenMP threads can't use them
N, K = 2000, 512
codes = np.random.default_rng(0).integers(-127, 128, (N, K), np.int8)
matrix = FrozenMatrix("m", "int8", codes, np.ones(N, np.float32))
engine = create_engine("torch_cpu", {"m": matrix}, EngineOptions(threads=2))
x = torch.ones(2, K)
expected = engine.forward("m", x)
assert threading.active_count() == 2
"""


def run_program(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_forked_child_computes_and_so_does_its_parent() -> None:
    done = run_program(
        "child = os.fork()\n"
        "assert torch.equal(engine.forward('m', x), expected)\n"
        "assert threading.active_count() == 2\n"
        "engine.close()\n"
        "if child == 0:\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_a_product_is_over_before_an_interruption_and_the_process_then_ends() -> None:
    done = run_program(
        "parts = []\n"
        "forward = torch_cpu._forward\n"
        "def noted(*arguments):\n"
        "    parts.append('begun')\n"
        "    forward(*arguments)\n"
        "    time.sleep(0.3 if threading.current_thread() is not threading.main_thread() else 0)\n"
        "    parts.append('over')\n"
        "torch_cpu._forward = noted\n"
        "threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    engine.forward('m', x)\n"
        "except KeyboardInterrupt:\n"
        "    print(sorted(parts), torch.get_num_threads())\n"
        "torch_cpu._forward = forward\n"
        "assert torch.equal(engine.forward('m', x), expected)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "while True:\n"
        "    engine.forward('m', torch.ones(500, K))\n"
    )
    assert done.stdout == "['begun', 'begun', 'over', 'over'] 1\n", done.stderr
    assert done.returncode == 75, done.stderr


@pytest.mark.parametrize("direction", get_args(Direction))
@pytest.mark.parametrize("threads", [1, 2])
def test_weights_kept_as_fp16_give_the_same_bits(direction: Direction, threads: int) -> None:
    matrices = {name: frozen("int4_min", name) for name in ("several tiles", "uneven")}
    matrices["int8"] = frozen("int8", "uneven")
    options = EngineOptions(threads=threads)
    plain = create_engine("torch_cpu", matrices, options)
    keeping = create_engine("torch_cpu", matrices, options)
    first, second = (2 * int(np.prod(SHAPES[name])) for name in ("several tiles", "uneven"))
    assert keeping.decodable_bytes == first + second
    for room in (0, first - 1, first, first + second):
        keeping.keep_decoded(room)
        for name, matrix in matrices.items():
            a = operand(matrix, direction, 37)
            results = [
                engine.forward(name, a)
                if direction == "forward"
                else engine.input_gradient(name, a)
                for engine in (plain, keeping)
            ]
            assert torch.equal(*results)
        kept = keeping._weights.values()  # type: ignore[attr-defined]
        halves = sum(w.codes.nbytes for w in kept if w.codes.dtype == torch.float16)
        assert halves == {0: 0, first - 1: 0, first: first}.get(room, first + second)
