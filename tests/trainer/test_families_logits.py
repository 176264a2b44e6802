"""Logits of every family against `transformers`, from a folder that `transformers` saved."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainer.families import FAMILIES, Member, add_member, make_member
from tests.trainer.oracle import relative_error
from trainer.packing import SegmentTree

IDS = torch.randint(0, 288, (150,), generator=torch.Generator().manual_seed(7)).tolist()


@pytest.fixture(scope="module", params=FAMILIES)
def member(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Member:
    return make_member(tmp_path_factory.mktemp("family"), request.param)


def our_logits(member: Member, ids: list[int]) -> torch.Tensor:
    tree = SegmentTree()
    tree.add(ids)
    decoder = member.decoder()
    with torch.no_grad():
        return decoder.logits(decoder.hidden(tree.pack()))


def expected_logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def test_logits_equal_transformers(member: Member) -> None:
    """Ours is fp32: a few hundred roundings (6e-8) through two layers."""
    expected = expected_logits(member.oracle, IDS)
    assert relative_error(our_logits(member, IDS), expected) < 3e-6


def test_packed_branches_equal_transformers_on_each_alone(member: Member) -> None:
    tree = SegmentTree()
    root = tree.add(IDS[:70])
    branches = [(tree.add(IDS[start : start + 9], root), start) for start in (80, 95, 120)]
    decoder = member.decoder()
    with torch.no_grad():
        logits = decoder.logits(decoder.hidden(tree.pack()))
    for branch, start in branches:
        alone = expected_logits(member.oracle, [*IDS[:70], *IDS[start : start + 9]])
        assert relative_error(logits[tree.last_row(branch)], alone[-1]) < 3e-6


OLD_ROPE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "type": lambda rope: {"type": rope.pop("rope_type"), **rope},
    "rope_type": lambda rope: rope,
}


@pytest.mark.parametrize("family", ["llama 3", "llama, linear", "qwen2, untied"])
@pytest.mark.parametrize("key", OLD_ROPE)
def test_rope_parameters_as_transformers_4_wrote_them(
    family: str, key: str, tmp_path: Path
) -> None:
    """`rope_theta` at the top level, the rest in `rope_scaling`, null where there is none."""
    new = make_member(tmp_path / "new", family)
    path = new.folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = OLD_ROPE[key](rope) if rope["rope_type"] != "default" else None
    path.write_text(json.dumps(config))
    old = add_member(tmp_path / "old", AutoModelForCausalLM.from_pretrained(new.folder), new.folder)
    assert old.weights.content_hash == new.weights.content_hash
    assert torch.equal(expected_logits(old.oracle, IDS), expected_logits(new.oracle, IDS))
