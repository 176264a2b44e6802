"""A version is also measured on the base model as its makers gave it, or says why it isn't."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from tests.trainer.families import FAMILIES, Member, make_member
from tests.trainer.family_gguf import write_gguf
from tests.trainer.oracle import relative_error
from tests.trainer.workers import at, fill, manifest_of, run_to_the_end, write_spec
from trainer.add_model import add_model
from trainer.lora import LoraAdapter
from trainer.memory import MIB
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.tiny import write_tiny_model
from trainer.original_base import NoOriginalError, Original
from trainer.packing import SegmentTree
from trainer.run_examples import RunExamples
from trainer.run_plan import RunPlan
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer

IDS = torch.randint(0, 256, (40,), generator=torch.Generator().manual_seed(3)).tolist()


def spec_of(home: Path, name: str, memory_mb: int | None = None) -> RunSpec:
    manifest = json.loads((home / "models" / name / "manifest.json").read_text())
    write_spec(home, 1)
    path = home / "runs/1/spec.json"
    raw = json.loads(path.read_text())
    raw["model"] = {"name": name, "base_hash": manifest["base_hash"]}
    path.write_text(json.dumps(raw | {"memory_mb": memory_mb}))
    return RunSpec.load(path)


def plan_of(home: Path, spec: RunSpec, adapter: LoraAdapter) -> RunPlan:
    weights = FrozenWeights.open(home / "models" / spec.model_name / "weights.lorad")
    engine = open_engine(weights, "torch_cpu", EngineOptions(threads=1))
    return RunPlan(spec, weights, engine, adapter, {}, 0)


def logits(decoder: Decoder) -> torch.Tensor:
    tree = SegmentTree()
    tree.add(IDS)
    return decoder.logits(decoder.hidden(tree.pack()))


@pytest.fixture(scope="module", params=FAMILIES)
def member(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Member:
    """A model, and models/tiny in the same home, which keeps only int8 of it."""
    home = tmp_path_factory.mktemp("family")
    made = make_member(home, request.param)
    add_model(home, "tiny", str(made.folder), "int8")
    if request.param != "qwen3, untied":  # which GGUF can't express
        path = write_gguf(home / "model.gguf", made.oracle)
        add_model(home, "from-gguf", str(path), "int8")
    return made


def test_its_logits_are_those_of_the_makers_weights(member: Member) -> None:
    home = member.folder.parent
    with torch.no_grad():
        expected = member.oracle(torch.tensor([IDS])).logits[0]
    for name in ("tiny", "from-gguf"):
        if not (home / "models" / name).exists():
            continue
        spec = spec_of(home, name)
        plan = plan_of(home, spec, LoraAdapter(member.config, rank=4, alpha=8.0))
        kept = FrozenWeights.open(home / "models" / name / "weights.lorad")
        engine = open_engine(kept, "torch_cpu", EngineOptions(threads=1))
        coarse = logits(Decoder(member.config, kept, engine))
        assert relative_error(coarse, expected) > 3e-3, "int8 is not the original"
        original = Original.open(home, spec, plan)
        assert relative_error(logits(original.decoder), expected) < 1e-5
        original.close()


def brute_force(model: torch.nn.Module, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
    """-log likelihood of the answer after the prompt."""
    with torch.no_grad():
        rows = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return -float(rows.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)].sum())


def test_a_run_measures_what_transformers_and_peft_do_on_the_original(
    home: Path, tiny_folder: Path
) -> None:
    write_spec(home, 1)
    events = run_to_the_end(home, 1)
    metrics = manifest_of(home, events[-1])["metrics"]
    spec = RunSpec.load(home / "runs/1/spec.json")
    tokenizer = ChatTokenizer.load(home / "models/tiny")
    holdout = RunExamples(home, spec, tokenizer).data.holdout
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float64)
    model = PeftModel.from_pretrained(base, home / events[-1]["path"]).double()
    tokens = sum(len(one.answer) for one in holdout.values())
    total = sum(brute_force(model, one.prompt, one.answer) for one in holdout.values())
    found = metrics["original_base"]
    assert found["reason"] is None
    assert found["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert abs(metrics["after"]["loss"] - found["loss"]) > 1e-4 * found["loss"], "int8 differs"
    assert found["accuracy"] is not None


def test_what_is_forgotten_in_the_meantime_is_not_in_it(home: Path) -> None:
    write_spec(home, 1)
    script = at("delete", 49, 50, event="phase", phase="evaluating_original")
    events = run_to_the_end(home, 1, script)
    manifest = manifest_of(home, events[-1])
    assert [row["example_id"] for row in manifest["holdout_rows"]] == list(range(51, 81))
    write_spec(home, 2)
    raw = json.loads((home / "runs/2/spec.json").read_text())
    raw["holdout_example_ids"] = list(range(51, 81))
    (home / "runs/2/spec.json").write_text(json.dumps(raw))
    again = manifest_of(home, run_to_the_end(home, 2)[-1])
    for key in ("loss", "label_nll"):
        expected = again["metrics"]["original_base"][key]
        assert manifest["metrics"]["original_base"][key] == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def added(tmp_path: Path) -> Path:
    """A home whose models/tiny was added from tiny-llama beside it."""
    write_tiny_model(tmp_path / "tiny-llama")
    add_model(tmp_path, "tiny", str(tmp_path / "tiny-llama"))
    return tmp_path


def reason(home: Path, memory_mb: int | None = None) -> str:
    spec = spec_of(home, "tiny")
    kept = FrozenWeights.open(home / "models/tiny/weights.lorad")
    adapter = LoraAdapter(DecoderConfig.from_json(kept.metadata["config"]), rank=4, alpha=8.0)
    plan = plan_of(home, spec, adapter)
    plan.budget = None if memory_mb is None else memory_mb * MIB
    with pytest.raises(NoOriginalError) as refused:
        Original.open(home, spec, plan)
    return str(refused.value)


def test_without_it_the_reason_names_it(added: Path) -> None:
    source = added / "tiny-llama"
    assert "tiny-llama takes " in reason(added, memory_mb=100)
    (source / "config.json").write_text((source / "config.json").read_text() + "\n")
    assert reason(added) == "tiny-llama has changed since tiny was added from it"
    shutil.rmtree(source)
    assert reason(added) == "tiny-llama, from which tiny was added, isn't where it was"


def test_of_a_model_that_an_earlier_lorad_added_it_is_not_known(added: Path) -> None:
    path = added / "models/tiny/manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text())
    assert manifest["origin"]["path"] == str(added / "tiny-llama")
    del manifest["origin"]
    path.write_text(json.dumps(manifest))
    assert "earlier lorad" in reason(added)


def test_a_run_whose_original_is_gone_is_a_version_and_says_so(added: Path) -> None:
    fill(added)
    shutil.rmtree(added / "tiny-llama")
    write_spec(added, 1)
    metrics = manifest_of(added, run_to_the_end(added, 1)[-1])["metrics"]
    assert metrics["after"]["loss"] is not None
    assert metrics["original_base"] == {
        "loss": None,
        "label_nll": None,
        "accuracy": None,
        "reason": "tiny-llama, from which tiny was added, isn't where it was",
    }
