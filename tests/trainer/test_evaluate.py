"""The label scorer against brute force with `transformers`, one label at a time."""

import math
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from tests.trainer.oracle import make_pair, randomise_b
from trainer.dataset import TokenExample
from trainer.evaluate import evaluate
from trainer.export.peft import write_peft_folder
from trainer.lora import LoraAdapter

END = 2
# "ab" starts with all of "a": without the end token the shorter could never lose.
LABELS = {"a": [60, END], "ab": [60, 61, END], "c": [63, END], "long": [64, 65, 66, 67, END]}
HOLDOUT = [
    TokenExample(i, (7, 8, 9, *range(20 + i, 24 + 3 * i)), tuple(LABELS[label]), label)
    for i, label in enumerate(["a", "ab", "c", "long", "a"] * 5)
]


def brute_force(model: torch.nn.Module, prompt: tuple[int, ...], answer: list[int]) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0].double()
    rows = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    return float(rows[torch.arange(len(answer)), torch.tensor(answer)].sum())


@pytest.mark.parametrize("adapted", [True, False])
def test_scores_equal_brute_force(tmp_path: Path, adapted: bool) -> None:
    pair = make_pair(tmp_path)
    adapter = LoraAdapter(pair.config, rank=4, alpha=64.0)
    randomise_b(adapter)
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_peft_folder(folder, adapter, base_model="tiny", base_hash="sha256:0")
    model = PeftModel.from_pretrained(pair.oracle, folder).double() if adapted else pair.oracle
    calls: list[tuple[int, int]] = []
    found = evaluate(
        pair.decoder,
        adapter if adapted else None,
        {example.id: example for example in HOLDOUT},
        LABELS,
        lambda done, total: calls.append((done, total)),
    )
    assert calls[-1] == (len(HOLDOUT), len(HOLDOUT))
    assert len(calls) > 1, "one part would not test the splitting"
    right, nlls, losses = 0, [], []
    for row, example in zip(found.rows, HOLDOUT, strict=True):
        scores = {name: brute_force(model, example.prompt, ids) for name, ids in LABELS.items()}
        best = max(scores, key=scores.__getitem__)
        total = math.log(sum(math.exp(score) for score in scores.values()))
        assert row.example_id == example.id
        assert row.predicted == best
        # Summed log-likelihoods of up to five fp32 tokens near -5 each: 1e-5 is 20 roundings.
        assert row.label_nll == pytest.approx(total - scores[example.label], abs=1e-5)
        assert row.answer_nll == pytest.approx(-scores[example.label], abs=1e-5)
        right += best == example.label
        nlls.append(total - scores[example.label])
        losses.append(-scores[example.label])
    summary = found.summary({example.id: example.label for example in HOLDOUT})
    assert summary["accuracy"] == right / len(HOLDOUT)
    assert summary["label_nll"] == pytest.approx(sum(nlls) / len(nlls), abs=1e-5)
    assert summary["loss"] == pytest.approx(
        sum(losses) / sum(len(example.answer) for example in HOLDOUT), abs=1e-5
    )


def test_one_that_is_removed_while_others_are_scored_is_not(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    holdout = {example.id: example for example in HOLDOUT}
    scored: list[int] = []

    def progress(done: int, total: int) -> None:
        scored.append(done)
        holdout.pop(0, None)
        holdout.pop(done + 1, None)

    found = evaluate(pair.decoder, None, holdout, LABELS, progress)
    assert len(scored) > 1, "one part would leave none to be removed in time"
    assert scored[-1] == len(HOLDOUT)
    assert len(holdout) < len(HOLDOUT) - 1
    assert [row.example_id for row in found.rows] == list(holdout)
    whole = evaluate(pair.decoder, None, {one.id: one for one in HOLDOUT}, LABELS)
    expected = {row.example_id: row.answer_nll for row in whole.rows}
    for row in found.rows:  # other neighbours, other roundings
        assert row.answer_nll == pytest.approx(expected[row.example_id], abs=1e-5)


def test_without_labels_only_the_true_answer_is_scored(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    found = evaluate(pair.decoder, None, {e.id: e for e in HOLDOUT[:3]}, {})
    for row, example in zip(found.rows, HOLDOUT, strict=False):
        expected = brute_force(pair.oracle, example.prompt, list(example.answer))
        assert row.answer_nll == pytest.approx(-expected, abs=1e-5)
        assert row.predicted is None
    assert found.summary({})["accuracy"] is None
    assert evaluate(pair.decoder, None, {}, {}).summary({})["loss"] is None
