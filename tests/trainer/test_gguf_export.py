"""Adapters as GGUF LoRA: added by the real llama.cpp, read by `gguf`, refused where it can't be.

transformers' weights ─ fp16, exact ─▶ our decoder      ─ adapter ─▶ change of the logits
                      ─ F32 GGUF ───▶ the real llama.cpp ─ GGUF ───▶ the same change

lora_B is random and no matrix is square: a transposition, a pair of rows out of order or a wrong
scale changes everything.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from tests.trainer.families import FAMILIES, Member, make_member
from tests.trainer.family_gguf import write_gguf
from tests.trainer.llama_cpp import LlamaCpp
from trainer.export.gguf import GGUF_FILE, REFUSED, GGUFExportError, GGUFLora
from trainer.export.peft import CONFIG_FILE, TENSOR_FILE, write_peft_folder
from trainer.lora import TARGETS, LoraAdapter
from trainer.models.gguf import GGUFFile
from trainer.packing import SegmentTree
from trainer.publishing import publish_version
from trainer.safetensors_file import SafetensorsFile, write_safetensors

IDS = torch.randint(0, 256, (40,), generator=torch.Generator().manual_seed(3)).tolist()
IN_LLAMA_CPP = [name for name in FAMILIES if name != "qwen3, untied"]
"""It has a rope of Llama 3's kind for a Llama only."""

ADAPTERS: dict[str, dict[str, Any]] = {
    "rank 1": {"rank": 1},
    "rank 8": {"rank": 8},
    "rslora": {"rank": 8, "use_rslora": True},
    "attention": {"rank": 8, "targets": TARGETS[:4]},
    "one target": {"rank": 1, "targets": ("k_proj",)},
    "top layer": {"rank": 8, "layers": 1},
    "top layer's q, rslora": {
        "rank": 3,
        "layers": 1,
        "targets": ("q_proj",),
        "use_rslora": True,
    },
}
BASE = {"base_model": "tiny", "base_hash": "sha256:0"}


@dataclass
class Pair:
    """One model in both programs, and its logits there without an adapter."""

    member: Member
    theirs: LlamaCpp
    ours_alone: torch.Tensor
    theirs_alone: np.ndarray

    def our_logits(self, adapter: LoraAdapter | None) -> torch.Tensor:
        tree = SegmentTree()
        tree.add(IDS)
        decoder = self.member.decoder()
        with torch.no_grad():
            return decoder.logits(decoder.hidden(tree.pack(), adapter))


@pytest.fixture(scope="module", params=IN_LLAMA_CPP)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("family")
    member = make_member(home, request.param)
    theirs = LlamaCpp(write_gguf(home / "model.gguf", member.oracle))
    made = Pair(member, theirs, torch.empty(0), theirs.logits(IDS))
    made.ours_alone = made.our_logits(None)
    yield made
    theirs.close()


def make_adapter(member: Member, **settings: Any) -> LoraAdapter:
    adapter = LoraAdapter(member.config, alpha=6.0, **settings)
    adapter.randomise(torch.Generator().manual_seed(adapter.rank), 0.1)
    return adapter


def write_lora(path: Path, adapter: LoraAdapter) -> Path:
    """The adapter as GGUF, in a folder that is made for it."""
    path.parent.mkdir(exist_ok=True)
    write_peft_folder(path.parent, adapter, **BASE)
    with path.open("wb") as file:
        GGUFLora.of_peft_folder(path.parent, adapter.config, **BASE).write(file)
    return path


@pytest.mark.parametrize("settings", ADAPTERS)
def test_llama_cpp_adds_what_we_add(pair: Pair, settings: str, tmp_path: Path) -> None:
    adapter = make_adapter(pair.member, **ADAPTERS[settings])
    pair.theirs.add(write_lora(tmp_path / GGUF_FILE, adapter))
    ours = (pair.our_logits(adapter) - pair.ours_alone).double()
    theirs = torch.from_numpy(pair.theirs.logits(IDS) - pair.theirs_alone).double()
    assert ours.norm() > 1e-2 * pair.ours_alone.norm(), "a change that can be seen"
    assert (ours - theirs).norm() < 1e-4 * ours.norm()


@pytest.mark.parametrize("settings", ADAPTERS)
def test_the_gguf_package_reads_the_same_tensors(pair: Pair, settings: str, tmp_path: Path) -> None:
    adapter = make_adapter(pair.member, **ADAPTERS[settings])
    path = write_lora(tmp_path / GGUF_FILE, adapter)
    reader = gguf.GGUFReader(path)
    values = {name: field.contents() for name, field in reader.fields.items()}
    assert values["general.architecture"] == pair.member.config.family
    assert (values["general.type"], values["adapter.type"]) == ("adapter", "lora")
    assert values["general.base_model.0.name"] == "tiny"
    assert reader.fields["adapter.lora.alpha"].types == [gguf.GGUFValueType.FLOAT32]
    scale = values["adapter.lora.alpha"] / adapter.rank
    assert scale == pytest.approx(adapter.scale, rel=1e-6)
    found = {tensor.name: tensor for tensor in reader.tensors}
    architecture = next(
        key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == adapter.config.family
    )
    names = gguf.get_tensor_name_map(architecture, adapter.config.num_hidden_layers)
    expected = {}
    for key, values in adapter.to_arrays().items():
        module, _, part = (
            key.removesuffix(".weight").removeprefix("base_model.model.").rpartition(".")
        )
        expected[f"{names.get_name(module)}.weight.{part.lower()}"] = values
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].tensor_type == gguf.GGMLQuantizationType.F32
        stored = found[name].data
        if adapter.config.family == "llama" and name.endswith(
            ("q.weight.lora_b", "k.weight.lora_b")
        ):
            assert sorted(map(tuple, stored.tolist())) == sorted(map(tuple, values.tolist()))
        else:
            assert np.array_equal(stored, values), name
    own = GGUFFile(path)
    assert own.tensors.keys() == expected.keys()
    assert own.metadata["general.base_model.0.version"] == "sha256:0"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Member:
    return make_member(tmp_path_factory.mktemp("llama"), "llama")


def as_bytes(folder: Path, adapter: LoraAdapter) -> bytes:
    file = io.BytesIO()
    GGUFLora.of_peft_folder(folder, adapter.config, **BASE).write(file)
    return file.getvalue()


def test_the_bytes_are_the_formats(llama: Member, tmp_path: Path) -> None:
    """By hand, from ggml's gguf.md: header, keys, tensor infos, and data at multiples of 32."""
    adapter = make_adapter(llama, rank=3, targets=("k_proj",), layers=1)
    write_peft_folder(tmp_path, adapter, **BASE)

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    keys = [
        ("general.architecture", "llama"),
        ("general.type", "adapter"),
        ("general.name", "A LoRA adapter made by lorad for tiny"),
        ("general.base_model.count", 1),
        ("general.base_model.0.name", "tiny"),
        ("general.base_model.0.version", "sha256:0"),
        ("adapter.type", "lora"),
        ("adapter.lora.alpha", 6.0),
    ]
    expected = b"GGUF" + struct.pack("<IQQ", 3, 2, len(keys))
    for key, value in keys:
        expected += text(key)
        if isinstance(value, str):
            expected += struct.pack("<I", 8) + text(value)
        else:
            expected += struct.pack("<II", 4, 1) if value == 1 else struct.pack("<If", 6, value)
    A, B = adapter.lora_A(1, "k_proj").numpy(), adapter.lora_B(1, "k_proj").numpy()
    assert (A.shape, B.shape) == ((3, 40), (24, 3))
    expected += text("blk.1.attn_k.weight.lora_a") + struct.pack("<IQQIQ", 2, 40, 3, 0, 0)
    expected += text("blk.1.attn_k.weight.lora_b") + struct.pack("<IQQIQ", 2, 3, 24, 0, 480)
    expected += bytes(-len(expected) % 32)
    order = [head * 12 + half * 6 + i for head in range(2) for i in range(6) for half in (0, 1)]
    expected += A.tobytes() + B[order].tobytes()
    assert as_bytes(tmp_path, adapter) == expected


REFUSED_SETTINGS = {
    "use_dora": True,
    "bias": "lora_only",
    "modules_to_save": ["lm_head"],
    "alpha_pattern": {"q_proj": 3},
    "trainable_token_indices": [3],
    "peft_type": "ADALORA",
    "lora_alpha": 0,
    "r": 0,
}


@pytest.mark.parametrize("key", REFUSED_SETTINGS)
def test_settings_that_it_cannot_express_are_refused_by_name(
    llama: Member, key: str, tmp_path: Path
) -> None:
    adapter = make_adapter(llama, rank=2)
    write_peft_folder(tmp_path, adapter, **BASE)
    settings = json.loads((tmp_path / CONFIG_FILE).read_text())
    (tmp_path / CONFIG_FILE).write_text(json.dumps(settings | {key: REFUSED_SETTINGS[key]}))
    named = {"peft_type": "ADALORA", "lora_alpha": "alpha", "r": "rank"}.get(key, key)
    with pytest.raises(GGUFExportError, match=named):
        as_bytes(tmp_path, adapter)


def test_a_whole_number_as_alpha_is_written_as_a_fraction(llama: Member, tmp_path: Path) -> None:
    """As any other type it ends llama.cpp's process."""
    adapter = make_adapter(llama, rank=2)
    write_peft_folder(tmp_path, adapter, **BASE)
    expected = as_bytes(tmp_path, adapter)
    settings = json.loads((tmp_path / CONFIG_FILE).read_text())
    (tmp_path / CONFIG_FILE).write_text(json.dumps(settings | {"lora_alpha": 6}))
    assert as_bytes(tmp_path, adapter) == expected


def test_an_alpha_that_llama_cpp_would_take_for_none_is_refused(
    llama: Member, tmp_path: Path
) -> None:
    """Of 0 it makes a scale of 1, and 1e-50 is 0 in float32."""
    adapter = LoraAdapter(llama.config, rank=2, alpha=1e-50)
    write_peft_folder(tmp_path, adapter, **BASE)
    with pytest.raises(GGUFExportError, match="alpha"):
        as_bytes(tmp_path, adapter)


def with_tensors(folder: Path, adapter: LoraAdapter, **changed: np.ndarray | None) -> None:
    """Write the folder with tensors added, replaced or left out, by the end of their keys."""
    write_peft_folder(folder, adapter, **BASE)
    file = SafetensorsFile(folder / TENSOR_FILE)
    arrays = {name: file.load(name) for name in file.names()}
    for key, values in changed.items():
        name = f"base_model.model.{key.replace('__', '.')}.weight"
        if values is None:
            del arrays[name]
        else:
            arrays[name] = values
    write_safetensors(folder / TENSOR_FILE, arrays, {"format": "pt"})


Q = "model__layers__0__self_attn__q_proj__"
REFUSED_TENSORS: dict[str, tuple[dict[str, np.ndarray | None], str]] = {
    "one of a pair": ({f"{Q}lora_B": None}, "q_proj in layer 0, found lora_A alone"),
    "transposed": ({f"{Q}lora_A": np.ones((40, 2), np.float32)}, r"shape \[2, 40\]"),
    "another rank": ({f"{Q}lora_A": np.ones((3, 40), np.float32)}, r"found \[3, 40\]"),
    "another base": ({f"{Q}lora_B": np.ones((40, 2), np.float32)}, r"shape \[48, 2\]"),
    "the embedding": (  # of tied weights, llama.cpp ends the process at the first token
        {"model__embed_tokens__lora_A": np.ones((2, 40), np.float32)},
        "embed_tokens",
    ),
    "the head": ({"lm_head__lora_A": np.ones((2, 40), np.float32)}, "lm_head"),
    "a layer too many": (
        {"model__layers__2__self_attn__q_proj__lora_A": np.ones((2, 40), np.float32)},
        "layers.2",
    ),
    "a norm": (  # llama.cpp leaves it out without a word
        {"model__layers__0__input_layernorm__lora_A": np.ones((2, 40), np.float32)},
        "input_layernorm",
    ),
    "not finite": ({f"{Q}lora_B": np.full((48, 2), np.inf, np.float32)}, "finite"),
}


@pytest.mark.parametrize("case", REFUSED_TENSORS)
def test_tensors_that_llama_cpp_would_refuse_or_misread_are_refused_before(
    llama: Member, case: str, tmp_path: Path
) -> None:
    adapter = make_adapter(llama, rank=2)
    changed, named = REFUSED_TENSORS[case]
    with_tensors(tmp_path, adapter, **changed)
    with pytest.raises(GGUFExportError, match=named):
        as_bytes(tmp_path, adapter)


def test_no_adapter_at_all_is_refused(llama: Member, tmp_path: Path) -> None:
    adapter = make_adapter(llama, rank=2, targets=("q_proj",), layers=1)
    top = Q.replace("0", "1")
    with_tensors(tmp_path, adapter, **{f"{top}lora_A": None, f"{top}lora_B": None})
    with pytest.raises(GGUFExportError, match="found none"):
        as_bytes(tmp_path, adapter)


VERSION = Path("adapters/1/versions/run-00000001")


@pytest.fixture
def published(llama: Member, tmp_path: Path) -> Path:
    """A home with one version and its base model, whose weights nobody reads here."""
    manifest = json.loads((llama.folder.parent / "models/member/manifest.json").read_text())
    model = tmp_path / "models/member"
    model.mkdir(parents=True)
    (model / "manifest.json").write_text(json.dumps(manifest))
    base = {"base_model": "member", "base_hash": manifest["base_hash"]}
    publish_version(tmp_path, VERSION, make_adapter(llama, rank=2), base)
    return tmp_path


def made_anew(home: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "trainer.export.gguf"]
    command += ["--home", str(home), "--version", str(VERSION)]
    return subprocess.run(command, capture_output=True, check=False)


def test_a_version_has_the_file_and_the_same_is_made_anew(published: Path) -> None:
    folder = published / VERSION
    assert GGUF_FILE in json.loads((folder / "version.json").read_text())["files"]
    expected = (folder / GGUF_FILE).read_bytes()
    (folder / GGUF_FILE).unlink()
    child = made_anew(published)
    assert (child.returncode, child.stderr) == (0, b"")
    assert child.stdout == expected
    assert not (folder / GGUF_FILE).exists(), "a version is never written to again"


def test_without_its_base_model_it_cannot_be_made_anew(published: Path) -> None:
    manifest = published / "models/member/manifest.json"
    other = json.loads(manifest.read_text()) | {"base_hash": "sha256:other"}
    manifest.write_text(json.dumps(other))
    child = made_anew(published)
    assert (child.returncode, child.stdout) == (REFUSED, b"")
    assert b"sha256:other" in child.stderr
    shutil.rmtree(published / "models/member")
    child = made_anew(published)
    assert (child.returncode, child.stdout) == (REFUSED, b"")
    assert b"lorad model add member" in child.stderr


def test_an_adapter_that_gguf_cannot_express_is_a_version_all_the_same(
    llama: Member, tmp_path: Path
) -> None:
    adapter = LoraAdapter(llama.config, rank=2, alpha=1e-50)
    publish_version(tmp_path, VERSION, adapter, BASE)
    files = json.loads((tmp_path / VERSION / "version.json").read_text())["files"]
    assert files.keys() == {"README.md", CONFIG_FILE, TENSOR_FILE}
    assert not (tmp_path / VERSION / GGUF_FILE).exists()
