"""The zip that an app downloads, loaded by the real `peft` on `transformers`' model."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from service.archive import zip_files
from service.routes.versions import PEFT_FILES
from tests.trainer.families import FAMILIES, Member, make_member
from tests.trainer.oracle import relative_error
from trainer.lora import TARGETS, LoraAdapter
from trainer.packing import SegmentTree
from trainer.publishing import publish_version

IDS = torch.randint(0, 288, (40,), generator=torch.Generator().manual_seed(3)).tolist()
ADAPTERS: dict[str, dict[str, Any]] = {
    "rank 1": {"rank": 1},
    "rslora": {"rank": 8, "use_rslora": True},
    "top layer's attention": {"rank": 4, "layers": 1, "targets": TARGETS[:4]},
    "top layer, rslora": {"rank": 4, "layers": 1, "use_rslora": True},
}


@pytest.fixture(scope="module", params=FAMILIES)
def member(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Member:
    return make_member(tmp_path_factory.mktemp("family"), request.param)


@pytest.mark.parametrize("settings", ADAPTERS)
def test_the_zip_changes_the_logits_as_ours_does(
    member: Member, settings: str, tmp_path: Path
) -> None:
    adapter = LoraAdapter(member.config, alpha=6.0, **ADAPTERS[settings])
    adapter.randomise(torch.Generator().manual_seed(1), 0.1)
    version = Path("adapters/1/versions/run-00000001")
    base = {"base_model": "tiny", "base_hash": "sha256:0"}
    publish_version(tmp_path, version, adapter, base)
    with (
        zip_files([tmp_path / version / name for name in PEFT_FILES], tmp_path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        archive.extractall(tmp_path / "app")
    with torch.no_grad():
        alone = member.oracle(torch.tensor([IDS])).logits[0]
        model = PeftModel.from_pretrained(member.oracle, tmp_path / "app").double()
        expected = model(torch.tensor([IDS])).logits[0] - alone
        loaded = [name for name, _ in model.named_parameters() if "lora_" in name]
        model.unload()
        tree = SegmentTree()
        tree.add(IDS)
        decoder = member.decoder()
        ours = decoder.logits(decoder.hidden(tree.pack(), adapter))
        ours -= decoder.logits(decoder.hidden(tree.pack()))
    assert len(loaded) == len(adapter.named_parameters())
    assert expected.norm() > 1e-2 * alone.norm(), "a change that can be seen"
    assert relative_error(ours, expected) < 1e-4
