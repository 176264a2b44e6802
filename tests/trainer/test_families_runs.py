"""A whole run on a model of each family, and its adapter where a user takes it: PEFT.

transformers saves ─▶ add_model ─▶ worker ─▶ version ─▶ peft on transformers' model: same loss
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerFast

from tests.trainer.families import make_member
from tests.trainer.workers import (
    CANARY,
    LABELS,
    WORDS,
    fill,
    manifest_of,
    run_to_the_end,
    step_numbers,
    write_spec,
)


def expected_nll(model: Any, folder: Path) -> float:
    """Of the held-out examples' labels, normalised over the labels, natural log."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    answers = [[*tokenizer.encode(label, add_special_tokens=False), end] for label in LABELS]
    losses = []
    for number in range(48, 80):
        message = {"role": "user", "content": f"{CANARY} {WORDS[number % 10]} number {number}"}
        prompt = tokenizer.apply_chat_template(
            [message], add_generation_prompt=True, return_dict=False
        )
        scores = []
        for answer in answers:
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *answer]])).logits[0]
            likely = logits[len(prompt) - 1 : -1].log_softmax(-1)
            scores.append(likely[range(len(answer)), answer].sum())
        losses.append(-torch.stack(scores).log_softmax(0)[number % 10 % 3])
    return float(torch.stack(losses).mean())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama 3", "qwen2", "qwen3"])
def test_a_runs_adapter_is_worth_the_same_in_peft(family: str, tmp_path: Path) -> None:
    member = make_member(tmp_path, family)
    (tmp_path / "models/member").rename(tmp_path / "models/tiny")
    fill(tmp_path)
    write_spec(tmp_path, 1)
    events = run_to_the_end(tmp_path, 1)
    steps = step_numbers(events)
    assert steps[12][0] < 0.9 * steps[1][0]
    metrics = manifest_of(tmp_path, events[-1])["metrics"]
    assert metrics["before"]["label_nll"] == pytest.approx(
        expected_nll(member.oracle, member.folder), rel=1e-5
    )
    model = PeftModel.from_pretrained(member.oracle, tmp_path / events[-1]["path"]).double()
    after = metrics["after"]["label_nll"]
    assert after != pytest.approx(metrics["before"]["label_nll"], rel=1e-2)
    assert after == pytest.approx(expected_nll(model, member.folder), rel=1e-5)
