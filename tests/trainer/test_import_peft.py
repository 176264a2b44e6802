"""Adapters that the real PEFT saved, imported; what can't be is refused by its name."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.trainer.workers import manifest_of, run_to_the_end, step_numbers, write_spec
from trainer.import_peft import import_peft
from trainer.models.config import DecoderConfig
from trainer.peft_import.refused import ImportRefusedError
from trainer.run_adapter import fresh_adapter
from trainer.safetensors_file import SafetensorsFile
from trainer.spec import RunSpec

PATH = Path("adapters/1/versions/import-0")
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
Q_0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def ours(home: Path, **changed: Any) -> dict[str, Any]:
    """Our adapter, as the daemon describes it."""
    manifest = json.loads((home / "models/tiny/manifest.json").read_text())
    return {
        "id": 1,
        "base_model": "tiny",
        "base_hash": manifest["base_hash"],
        "rank": 4,
        "alpha": 8.0,
        "targets": TARGETS,
        "use_rslora": False,
        "top_layers": None,
    } | changed


def saved(base: Path, folder: Path, *, dtype: torch.dtype = torch.float32, **options: Any) -> Path:
    """What PEFT saves of a LoRA of random numbers."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": TARGETS, "task_type": "CAUSAL_LM"}
    model = AutoModelForCausalLM.from_pretrained(base)
    model = get_peft_model(model, LoraConfig(**(settings | options)))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.1)
    model.to(dtype).save_pretrained(folder)
    return folder


def packed(folder: Path, prefix: str = "") -> io.BytesIO:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in sorted(folder.iterdir()):
            target.write(file, prefix + file.name)
    archive.seek(0)
    return archive


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """A plain LoRA; treat it as read-only."""
    return saved(tiny_folder, tmp_path_factory.mktemp("plain"))


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in (CONFIG, TENSORS):
        (folder / name).write_bytes((plain / name).read_bytes())
    return folder


def refusal(home: Path, archive: io.BytesIO, **changed: Any) -> ImportRefusedError:
    with pytest.raises(ImportRefusedError) as caught:
        import_peft(home, PATH, ours(home, **changed), archive)
    assert not (home / PATH).exists()
    assert list((home / PATH).parent.glob(".tmp-*")) == []
    return caught.value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_tensor_is_pefts_own_and_peft_loads_it_again(
    home: Path, tiny_folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    source = saved(tiny_folder, tmp_path / "saved", dtype=dtype)
    import_peft(home, PATH, ours(home), packed(source, "my-adapter/"))
    given = load_file(source / TENSORS)
    kept = SafetensorsFile(home / PATH / TENSORS)
    assert set(kept.names()) == set(given)
    for name, tensor in given.items():
        assert np.array_equal(kept.load(name), tensor.float().numpy()), name
    manifest = json.loads((home / PATH / "version.json").read_text())
    assert manifest["base_hash"] == ours(home)["base_hash"]
    assert manifest["imported"]["base_known"] is False
    if dtype == torch.float32:
        ids = torch.tensor([[5, 6, 7, 8, 9]])
        logits = []
        for folder in (source, home / PATH):
            base = AutoModelForCausalLM.from_pretrained(tiny_folder)
            with torch.no_grad():
                logits.append(PeftModel.from_pretrained(base, folder)(ids).logits)
        assert torch.equal(*logits)


def test_as_the_daemon_starts_it_without_torch_and_a_run_begins_with_it(
    home: Path, plain: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "adapter.zip"
    archive.write_bytes(packed(plain).getvalue())
    program = (
        "import sys; from trainer.import_peft import main; code = main(); "
        "assert not {'torch', 'onnxruntime'} & set(sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "--home", str(home), "--path", str(PATH)]
    with archive.open("rb") as file:
        done = subprocess.run(
            [*command, "--adapter", json.dumps(ours(home))],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, json.loads(done.stdout)) == (0, {"event": "imported"}), done.stderr
    write_spec(home, 2, steps=3)
    cold = step_numbers(run_to_the_end(home, 2))
    write_spec(home, 3, steps=3)
    path = home / "runs/3/spec.json"
    start = {"version": 7, "path": PATH.as_posix()}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warm_start": start}))
    warm = run_to_the_end(home, 3)
    assert step_numbers(warm)[1][0] != cold[1][0]
    assert manifest_of(home, warm[-1])["warm_start"] == start
    spec = RunSpec.load(path)
    config = json.loads((home / "models/tiny/manifest.json").read_text())["config"]
    assert set(fresh_adapter(DecoderConfig.from_json(config), spec).to_arrays()) == set(
        SafetensorsFile(home / PATH / TENSORS).names()
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "lora_only"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"lora_bias": True}, "lora_bias"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"target_modules": [*TARGETS, "embed_tokens"]}, "embed_tokens"),
    ],
    ids=str,
)
def test_what_peft_can_and_we_cannot_is_refused_by_name(
    home: Path, tiny_folder: Path, tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    source = saved(tiny_folder, tmp_path / "saved", **options)
    error = refusal(home, packed(source))
    assert name in str(error)
    assert not error.conflict


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("init_lora_weights", "pissa"),
        ("peft_type", "LOHA"),
        ("fan_in_fan_out", True),
        ("something_of_next_year", {"on": True}),
        ("r", True),
        ("lora_alpha", "8"),
    ],
)
def test_a_setting_that_changes_the_arithmetic(
    home: Path, copy: Path, setting: str, value: Any
) -> None:
    config = json.loads((copy / CONFIG).read_text()) | {setting: value}
    (copy / CONFIG).write_text(json.dumps(config))
    assert setting in str(refusal(home, packed(copy)))


@pytest.mark.parametrize(
    ("options", "changed", "words"),
    [
        ({"r": 2}, {}, ["r 4", "found 2"]),
        ({"lora_alpha": 16}, {}, ["lora_alpha 8.0", "found 16"]),
        ({"use_rslora": True}, {}, ["use_rslora false", "found true"]),
        ({"target_modules": ["q_proj"]}, {}, ["found q_proj"]),
        ({}, {"top_layers": 1}, ["layers 1", "found 0, 1"]),
        ({"layers_to_transform": [0]}, {}, ["layers 0, 1", "found 0"]),
    ],
    ids=str,
)
def test_an_adapter_of_other_settings_names_both(
    home: Path,
    tiny_folder: Path,
    tmp_path: Path,
    options: dict[str, Any],
    changed: dict[str, Any],
    words: list[str],
) -> None:
    error = refusal(home, packed(saved(tiny_folder, tmp_path / "saved", **options)), **changed)
    assert error.conflict
    for word in words:
        assert word in str(error)


def test_the_top_layers_and_rslora_fit_an_adapter_of_the_same(
    home: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    options = {"layers_to_transform": [1], "use_rslora": True, "target_modules": ["up_proj"]}
    source = saved(tiny_folder, tmp_path / "saved", **options)
    same = {"top_layers": 1, "use_rslora": True, "targets": ["up_proj"]}
    import_peft(home, PATH, ours(home, **same), packed(source))
    config = json.loads((home / PATH / CONFIG).read_text())
    assert (config["layers_to_transform"], config["use_rslora"]) == ([1], True)


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / TENSORS)
    change(tensors)
    save_file(tensors, folder / TENSORS)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.update({Q_0: t[Q_0].T.contiguous()}), Q_0),
        (lambda t: t.update({Q_0: t[Q_0] * float("nan")}), "finite"),
        (lambda t: t.update({Q_0: t[Q_0].double()}), "F64"),
        (lambda t: t.pop(Q_0), Q_0),
        (lambda t: t.update({f"{Q_0}.more": t[Q_0].clone()}), f"{Q_0}.more"),
        (lambda t: [t[name].zero_() for name in t if "lora_B" in name], "lora_B zero"),
    ],
)
def test_tensors_that_are_not_such_an_adapters(
    home: Path, copy: Path, change: Callable[[dict[str, torch.Tensor]], Any], word: str
) -> None:
    change_tensors(copy, change)
    assert word in str(refusal(home, packed(copy)))


def test_an_adapter_on_another_base_names_both_hashes(home: Path, copy: Path) -> None:
    save_file(load_file(copy / TENSORS), copy / TENSORS, {"base_hash": "sha256:another"})
    error = refusal(home, packed(copy))
    assert error.conflict
    assert "sha256:another" in str(error)
    assert ours(home)["base_hash"] in str(error)
    error = refusal(home, packed(copy), base_hash="sha256:of-the-adapter")
    assert "sha256:of-the-adapter" in str(error)
    assert ours(home)["base_hash"] in str(error)


def zipped(*entries: tuple[str, bytes]) -> io.BytesIO:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries:
            target.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    archive.seek(0)
    return archive


def test_archives_that_are_no_adapters(home: Path, plain: Path) -> None:
    config, tensors = ((plain / name).read_bytes() for name in (CONFIG, TENSORS))
    truncated = io.BytesIO(packed(plain).getvalue()[:-100])
    damaged = bytearray(packed(plain).getvalue())
    damaged[len(damaged) // 2] ^= 0xFF
    for archive, words in (
        (io.BytesIO(b"no zip"), "zip file"),
        (truncated, "zip file"),
        (io.BytesIO(bytes(damaged)), "zip file"),
        (zipped((CONFIG, config)), f"one {TENSORS}"),
        (zipped((CONFIG, config), (TENSORS, tensors), (f"b/{TENSORS}", tensors)), "found 2"),
        (zipped((f"a/{CONFIG}", config), (f"b/{TENSORS}", tensors)), "one folder"),
        (zipped((CONFIG, b"[1]"), (TENSORS, tensors)), "JSON object"),
        (zipped((CONFIG, config), (TENSORS, b"short")), TENSORS),
        (zipped((CONFIG, config), (TENSORS, tensors + bytes(2 << 20))), "at most"),
        (zipped((CONFIG, b" " * (2 << 20)), (TENSORS, tensors)), "at most"),
    ):
        assert words in str(refusal(home, archive))


def test_no_name_in_the_archive_becomes_a_path(home: Path, plain: Path, tmp_path: Path) -> None:
    config, tensors = ((plain / name).read_bytes() for name in (CONFIG, TENSORS))
    absolute = str(tmp_path / "evil")
    archive = zipped(
        (f"../../../../{CONFIG}", config),
        (f"../../../../{TENSORS}", tensors),
        ("../../../../evil", b"x"),
        (absolute, b"x"),
    )
    before = sorted(path for path in tmp_path.rglob("*") if "adapters" not in path.parts)
    import_peft(home, PATH, ours(home), archive)
    assert sorted(path for path in tmp_path.rglob("*") if "adapters" not in path.parts) == before
    assert sorted(path.name for path in (home / PATH).iterdir()) == [
        "README.md",
        CONFIG,
        TENSORS,
        "version.json",
    ]
