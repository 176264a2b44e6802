"""Compiled graphs on disk: whole or absent, never trusted, never too many."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import npu.context_cache
import npu.sessions
from npu.context_cache import ContextCache, digest
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.frozen_matrix import FrozenMatrix
from npu.graphs import GraphSpec, build_graph
from npu.htp import SOCS
from npu.quantize import quantize_int8
from npu.sessions import HtpSessions, Session
from tests.npu.conftest import random_weight

BINARY = np.random.default_rng(0).integers(0, 256, 5000, np.uint8).tobytes()
FILES = {"binary.bin": BINARY, "forward.onnx": b"leads to one", "gradient.onnx": b"leads to other"}
PARTS = {"forward": digest(b"f"), "table": digest(b"t")}


def make_cache(folder: Path, **settings: int) -> ContextCache:
    options = {"keep_free_bytes": 0, **settings}
    return ContextCache(
        folder, versions={"onnxruntime-qnn": "2.7.0"}, options={"soc_model": "57"}, **options
    )


@pytest.fixture
def cache(tmp_path: Path) -> ContextCache:
    return make_cache(tmp_path / "engine" / "contexts")


def set_folder(tmp_path: Path, key: str) -> Path:
    (found,) = tmp_path.rglob(key)
    return found


def contents(paths: dict[str, Path] | None) -> dict[str, bytes] | None:
    return None if paths is None else {name: path.read_bytes() for name, path in paths.items()}


def test_a_set_comes_back_as_it_was(cache: ContextCache, tmp_path: Path) -> None:
    key = cache.key(PARTS)
    assert cache.load(key) is None
    moved = tmp_path / "big.bin"
    moved.write_bytes(BINARY)
    cache.store(key, {**FILES, "binary.bin": moved})
    assert contents(cache.load(key)) == FILES
    assert not moved.exists()
    again = make_cache(tmp_path / "engine" / "contexts")
    assert contents(again.load(again.key(PARTS))) == FILES
    assert set_folder(tmp_path, key).stat().st_mode & 0o77 == 0


def test_a_key_is_of_all_that_a_graph_depends_on(tmp_path: Path) -> None:
    def named(**changes: dict[str, str]) -> tuple[str, str]:
        facts = {"versions": {"a": "1"}, "options": {"soc": "57"}, **changes}
        cache = ContextCache(tmp_path, **facts)  # type: ignore[arg-type]
        key = cache.key(PARTS)
        cache.store(key, FILES)
        (folder,) = (path.parent.name for path in tmp_path.rglob(key))
        shutil.rmtree(tmp_path / folder)
        return folder, key

    usual = named()
    assert named() == usual
    assert named(versions={"a": "2"})[0] != usual[0]
    assert named(options={"soc": "69"})[1] != usual[1]
    cache = make_cache(tmp_path)
    keys = {
        cache.key(PARTS),
        cache.key({**PARTS, "table": digest(b"other")}),
        cache.key({"forward": PARTS["table"], "table": PARTS["forward"]}),
        cache.key({"forward": PARTS["forward"]}),
    }
    assert len(keys) == 4


def test_our_own_revision_counts(cache: ContextCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(cache.key(PARTS), FILES)
    monkeypatch.setattr(npu.context_cache, "GRAPHS_REVISION", 10**6)
    later = make_cache(cache._root)
    assert later.load(later.key(PARTS)) is None


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def overwrite_with_another_set(folder: Path) -> None:
    other = make_cache(folder.parent.parent)
    key = other.key({"another": digest(b"model")})
    other.store(key, {**FILES, "binary.bin": BINARY[::-1]})
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / key, folder)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit in the middle": lambda folder: flip(folder / "binary.bin", 2500),
    "in the first byte": lambda folder: flip(folder / "binary.bin", 0),
    "in the last byte": lambda folder: flip(folder / "binary.bin", -1),
    "in a small model": lambda folder: flip(folder / "forward.onnx", 3),
    "in a digest": lambda folder: flip(folder / "manifest.json", 60),
    "at the manifest's end": lambda folder: flip(folder / "manifest.json", -1),
    "truncated": lambda folder: os.truncate(folder / "binary.bin", 4000),
    "longer": lambda folder: (folder / "binary.bin").write_bytes(BINARY + b"x"),
    "an empty file": lambda folder: os.truncate(folder / "gradient.onnx", 0),
    "an empty manifest": lambda folder: os.truncate(folder / "manifest.json", 0),
    "half a set": lambda folder: (folder / "gradient.onnx").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a foreign file": lambda folder: (folder / "foreign.bin").write_bytes(b"what"),
    "a renamed file": lambda folder: (folder / "forward.onnx").rename(folder / "f.onnx"),
    "two files exchanged": lambda folder: (
        (folder / "forward.onnx").rename(folder / "kept"),
        (folder / "gradient.onnx").rename(folder / "forward.onnx"),
        (folder / "kept").rename(folder / "gradient.onnx"),
    ),
    "another key's set": overwrite_with_another_set,
    "a link to elsewhere": lambda folder: (
        (folder / "binary.bin").rename(folder.parent.parent / "binary.bin"),
        (folder / "binary.bin").symlink_to(folder.parent.parent / "binary.bin"),
    ),
    "a folder in a file's place": lambda folder: (
        (folder / "binary.bin").unlink(),
        (folder / "binary.bin").mkdir(),
    ),
    "a pipe in a file's place": lambda folder: (
        (folder / "binary.bin").unlink(),
        os.mkfifo(folder / "binary.bin"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_set_is_forgotten_and_made_again(
    cache: ContextCache,
    tmp_path: Path,
    damage: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = cache.key(PARTS)
    cache.store(key, FILES)
    folder = set_folder(tmp_path, key)
    damage(folder)
    with caplog.at_level(logging.WARNING):
        assert cache.load(key) is None
    assert "made again" in caplog.text
    assert not folder.exists()
    cache.store(key, FILES)
    assert contents(cache.load(key)) == FILES


def test_every_flipped_bit_of_a_manifest_is_seen(cache: ContextCache, tmp_path: Path) -> None:
    key = cache.key(PARTS)
    cache.store(key, FILES)
    size = (set_folder(tmp_path, key) / "manifest.json").stat().st_size
    for place in range(0, size, 19):
        flip(set_folder(tmp_path, key) / "manifest.json", place)
        assert cache.load(key) is None, place
        cache.store(key, FILES)


def test_a_store_that_fails_leaves_nothing(
    cache: ContextCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up at the third file, which no free-space check foresaw."""
    put = npu.context_cache._put
    written: list[Path] = []

    def full(content: bytes | Path, path: Path) -> None:
        written.append(path)
        if len(written) == 3:
            path.write_bytes(b"half of")
            raise OSError(errno.ENOSPC, "No space left on device")
        put(content, path)

    monkeypatch.setattr(npu.context_cache, "_put", full)
    with pytest.raises(OSError, match="No space left"):
        cache.store(cache.key(PARTS), FILES)
    assert len(written) == 3
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert cache.load(cache.key(PARTS)) is None


def test_the_disks_rest_is_left_alone(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, keep_free_bytes=1 << 60)
    with pytest.raises(OSError, match="compiled at each start") as caught:
        cache.store(cache.key(PARTS), FILES)
    assert caught.value.errno == errno.ENOSPC
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_least_recently_used_sets_go(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, limit_bytes=20_000)
    keys = [cache.key({"n": digest(bytes([n]))}) for n in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.store(key, FILES)
        manifest = set_folder(tmp_path, key) / "manifest.json"
        os.utime(manifest, (1000 + age, 1000 + age))
    assert cache.load(keys[0]) is not None
    cache.store(keys[3], FILES)
    assert [cache.load(key) is not None for key in keys] == [True, False, True, True]
    with pytest.raises(OSError, match="at most 20000 bytes, found 30000"):
        cache.store(cache.key({"n": digest(b"big")}), {"big.bin": bytes(30_000)})
    assert cache.load(keys[3]) is not None


def test_sets_of_other_versions_and_of_dead_processes_go(tmp_path: Path) -> None:
    old = ContextCache(tmp_path, versions={"a": "1"}, options={}, keep_free_bytes=0)
    old.store(old.key(PARTS), FILES)
    (old_folder,) = tmp_path.iterdir()
    foreign = tmp_path / "in-use.json"
    foreign.touch()
    cache = ContextCache(tmp_path, versions={"a": "2"}, options={}, keep_free_bytes=0)
    assert cache.load(cache.key(PARTS)) is None
    assert old_folder.exists(), "looking removes nothing"
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], check=True,
                           capture_output=True, text=True).stdout.strip()  # fmt: skip
    cache._folder.mkdir()
    dead, alive = (cache._folder / f".tmp-{pid}-00ff" for pid in (ended, os.getppid()))
    for folder in (dead, alive, cache._folder / ".gone-77"):
        folder.mkdir()
        (folder / "binary.bin").write_bytes(BINARY)
    cache.store(cache.key(PARTS), FILES)
    assert {path.name for path in tmp_path.iterdir()} == {cache._folder.name, foreign.name}
    assert {path.name for path in cache._folder.iterdir()} == {cache.key(PARTS), alive.name}


STORE = """
import sys
from pathlib import Path
from npu.context_cache import ContextCache, digest
cache = ContextCache(Path(sys.argv[1]), versions={"a": "1"}, options={}, keep_free_bytes=0)
for n in range(40):
    key = cache.key({"n": digest(bytes([n % 4]))})
    files = {"binary.bin": bytes([n % 4]) * 300_000, "forward.onnx": bytes([n % 4])}
    found = cache.load(key)
    if found is None:
        cache.store(key, files)
    elif {name: path.read_bytes() for name, path in found.items()} != files:
        sys.exit("not what was stored")
    if n % 5 == 4:
        cache.remove(key)
"""


def test_several_processes_share_it(tmp_path: Path) -> None:
    """Each stores, reads and removes the same keys; one that vanishes under a reader may fail."""
    processes = [
        subprocess.Popen([sys.executable, "-c", STORE, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 or b"FileNotFoundError" in errors, errors.decode()
    cache = ContextCache(tmp_path, versions={"a": "1"}, options={}, keep_free_bytes=0)
    for folder in cache._folder.iterdir():
        assert cache.load(folder.name) is not None, folder.name


def test_a_killed_store_is_invisible(tmp_path: Path) -> None:
    """SIGKILL at every file of a set: what the next process finds is all of it or nothing."""
    code = """
import os, signal, sys
from pathlib import Path
import npu.context_cache as module
put, left = module._put, int(sys.argv[2])
def killed(content, path):
    global left
    put(content, path)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
module._put = killed
cache = module.ContextCache(Path(sys.argv[1]), versions={"a": "1"}, options={}, keep_free_bytes=0)
cache.store("k", {"binary.bin": b"b" * 1000, "forward.onnx": b"f"})
"""
    cache = ContextCache(tmp_path, versions={"a": "1"}, options={}, keep_free_bytes=0)
    for files_written in (1, 2, 3, 4):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(files_written)], check=False
        )
        assert done.returncode == (-9 if files_written < 4 else 0)
        assert (cache.load("k") is None) == (files_written < 4)
    assert [path.name for path in cache._folder.iterdir()] == ["k"]


@pytest.fixture
def matrix() -> FrozenMatrix:
    return FrozenMatrix("m", "int8", *quantize_int8(random_weight(24, 40, 3)))


def open_cached(matrix: FrozenMatrix, folder: Path) -> Engine:
    options = EngineOptions(form="inputs", cache_dir=folder)
    return create_engine("qnn", {"m": matrix}, options)


def product(engine: Engine, matrix: FrozenMatrix) -> torch.Tensor:
    return engine.forward("m", torch.linspace(-1, 1, 3 * matrix.shape[1]).view(3, -1))


@pytest.mark.emulator
def test_a_compiled_graph_is_used_again(
    matrix: FrozenMatrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = product(open_cached(matrix, tmp_path), matrix)
    (kept,) = tmp_path.rglob("context.onnx")
    assert kept.parent.parent.parent == tmp_path

    def must_not(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(HtpSessions, "_compile_and_keep", must_not)
    assert torch.equal(first, product(open_cached(matrix, tmp_path), matrix))


@pytest.mark.emulator
@pytest.mark.parametrize("damage", ["flipped", "no model, well digested"])
def test_a_damaged_compiled_graph_never_reaches_the_loader(
    matrix: FrozenMatrix, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = product(open_cached(matrix, tmp_path), matrix)
    (kept,) = tmp_path.rglob("context.onnx")
    if damage == "flipped":
        flip(kept, kept.stat().st_size // 2)
    else:
        kept.write_bytes(b"no model")
        manifest = npu.context_cache._manifest(kept.parent.name, {kept.name: kept})
        (kept.parent / "manifest.json").write_bytes(manifest)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(first, product(open_cached(matrix, tmp_path), matrix))
    assert caplog.records


@pytest.mark.emulator
def test_a_disk_that_refuses_costs_nothing_but_the_cache(
    matrix: FrozenMatrix,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    compiled: list[object] = []
    compile = HtpSessions.compile

    def counted(self: HtpSessions, *arguments: Any) -> Session:
        compiled.append(arguments)
        return compile(self, *arguments)

    monkeypatch.setattr(HtpSessions, "compile", counted)
    with caplog.at_level(logging.WARNING):
        result = product(open_cached(matrix, blocked), matrix)
    assert result.shape == (3, 24)
    assert "can't be kept" in caplog.text
    assert len(compiled) == 1


@pytest.mark.emulator
def test_a_compiled_graph_belongs_to_its_versions_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = build_graph(GraphSpec("fp16", "forward", N=6, K=10, M=8))
    HtpSessions(cache_dir=tmp_path)(graph)
    HtpSessions(cache_dir=tmp_path, soc=SOCS[2])(graph)
    assert len(list(tmp_path.rglob("context.onnx"))) == 2
    monkeypatch.setattr(
        npu.sessions, "onnxruntime_versions", lambda *, qnn: {"onnxruntime-qnn": "9.9"}
    )
    HtpSessions(cache_dir=tmp_path)(graph)
    assert len(list(tmp_path.rglob("context.onnx"))) == 1, "the other versions' are gone"
