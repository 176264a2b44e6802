"""Texts and labels against `transformers` and `peft`, for a tiny random model of each family."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.trainer.families import Member, make_member
from tests.trainer.oracle import relative_error
from tests.trainer.predictor_child import LABELS, make_adapter
from trainer.export.peft import write_peft_folder
from trainer.lora import LoraAdapter
from trainer.models.kv_cache import KeyValueCache
from trainer.packing import SegmentTree
from trainer.predict.base import OpenBase
from trainer.predict.labels import predict_labels
from trainer.predict.question import Head, LabelQuestion, Prior, TextQuestion
from trainer.predict.room import PIECE_TOKENS, Room
from trainer.predict.shelf import AdapterShelf
from trainer.predict.text import write_text
from trainer.tokens import ChatTokenizer

FAMILIES = ("llama", "llama 3", "qwen2", "qwen3")
HEAD = Head(1, "member", "sha256:0", "the version", "torch_cpu", 1, "auto", None)
LONG = "a parcel came" * 12


class OneAdapter(AdapterShelf):
    """A shelf on which any version is this adapter."""

    def __init__(self, adapter: LoraAdapter | None) -> None:
        self._adapter = adapter

    def get(self, version: str | None) -> LoraAdapter | None:
        return self._adapter


class Listening(ChatTokenizer):
    """A tokenizer that notes the tokens whose text is asked for."""

    heard: list[int]

    def decode(self, ids: Any) -> str:
        self.heard = list(ids)
        return super().decode(ids)


class Both:
    """A family with an adapter whose lora_B isn't zero: ours, and peft's in float64."""

    def __init__(self, folder: Path, family: str) -> None:
        self.member: Member = make_member(folder, family)
        self.adapter = make_adapter(self.member.config, 3, rank=5, alpha=7.0)
        saved = folder / "adapter"
        saved.mkdir()
        write_peft_folder(saved, self.adapter, base_model="member", base_hash="sha256:0")
        self.oracle = PeftModel.from_pretrained(self.member.oracle, saved).double().eval()
        self.tokenizer = Listening.load(folder / "models/member")
        plenty = Room(self.member.config, 1 << 40, lambda tokens: tokens, 0)
        decoder = self.member.decoder()
        self.base = OpenBase(decoder, self.tokenizer, OneAdapter(self.adapter), plenty)

    def prompt(self, text: str) -> list[int]:
        return self.tokenizer.prompt_ids([{"role": "user", "content": text}])


@pytest.fixture(scope="module", params=FAMILIES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("family"), request.param)


def text_question(text: str, **changes: Any) -> TextQuestion:
    asked = TextQuestion(HEAD, ({"role": "user", "content": text},), 0.0, 1.0, 40, (), 0, False)
    return replace(asked, **changes)


@pytest.mark.parametrize("text", ["a parcel came", LONG])
def test_greedy_text_is_token_for_token_transformers(both: Both, text: str) -> None:
    prompt = torch.tensor([both.prompt(text)])
    with torch.no_grad():
        expected = both.oracle.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=40,
            eos_token_id=sorted(both.tokenizer.end_token_ids),
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
    for logits in expected.logits:
        best, second = logits[0].topk(2).values
        assert best - second > 1e-4, "a tie proves nothing, choose another text"
    tokens = expected.sequences[0, prompt.shape[1] :].tolist()
    assert len(set(tokens)) > 3, "the same token again and again proves little"
    found = write_text(both.base, text_question(text), lambda: None, lambda text: None)
    ended = tokens[-1] in both.tokenizer.end_token_ids
    assert both.tokenizer.heard == (tokens[:-1] if ended else tokens)
    assert found["usage"] == {"prompt_tokens": prompt.shape[1], "completion_tokens": len(tokens)}
    assert found["finish_reason"] == ("stop" if ended else "length")


def test_logits_with_kept_keys_equal_those_without(both: Both) -> None:
    """Whatever the pieces are; sums are in another order, so the last bits differ."""
    ids = both.prompt(LONG)
    assert len(ids) > PIECE_TOKENS
    decoder = both.base.decoder
    tree = SegmentTree()
    tree.add(ids)
    whole = decoder.hidden(tree.pack(), both.adapter)
    with torch.no_grad():
        oracle = both.oracle(torch.tensor([ids])).logits[0]
    for pieces in ([len(ids)], [1] * len(ids), [PIECE_TOKENS, len(ids) - PIECE_TOKENS], [3, 70, 1]):
        cache = KeyValueCache(both.member.config, len(ids))
        start = 0
        for size in pieces:
            last = torch.tensor([size - 1])
            packed = cache.packed(ids[start : start + size])
            start += size
            hidden = decoder.hidden(packed, both.adapter, last, cache)
            assert relative_error(hidden, whole[start - 1 : start]) < 1e-5
            assert relative_error(decoder.logits(hidden)[0], oracle[start - 1]) < 1e-5
        assert len(cache) == start


def test_the_cache_has_an_end(both: Both) -> None:
    cache = KeyValueCache(both.member.config, 4)
    with pytest.raises(ValueError, match="expected at most 4 tokens, found 5"):
        cache.packed([3] * 5)


@pytest.mark.parametrize("adapted", [True, False])
def test_probabilities_of_labels_equal_transformers(both: Both, adapted: bool) -> None:
    texts = ("call mum", LONG, "")
    question = LabelQuestion(HEAD, texts, (*LABELS, "nowhere"), "refuse", 512, None)
    base = both.base
    if not adapted:
        base = replace(base, adapters=OneAdapter(None))
    found = predict_labels(base, question, lambda: None)
    for text, answer in zip(texts, found, strict=True):
        scores = {
            label: likelihood(both, adapted, both.prompt(text), both.tokenizer.answer_ids(label))
            for label in question.labels
        }
        total = sum(map(math.exp, scores.values()))
        for label, score in scores.items():
            # Summed log-likelihoods of up to eight fp32 tokens near -5 each.
            assert answer["probabilities"][label] == pytest.approx(
                math.exp(score) / total, rel=2e-5
            )
        assert answer["label"] == max(scores, key=scores.__getitem__)


def likelihood(both: Both, adapted: bool, prompt: list[int], answer: list[int]) -> float:
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *answer]])
        if adapted:
            logits = both.oracle(ids).logits[0]
        else:
            with both.oracle.disable_adapter():
                logits = both.oracle(ids).logits[0]
    rows = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    return float(rows[torch.arange(len(answer)), torch.tensor(answer)].sum())


def test_the_clients_own_labels_correct_the_answer(both: Both) -> None:
    """By hand: log p_own + weight · (LL - log p_global), normalised."""
    question = LabelQuestion(HEAD, ("call mum",), tuple(LABELS), "refuse", 512, None)
    (plain,) = predict_labels(both.base, question, lambda: None)
    # A label that isn't declared any more counts nowhere.
    history = ("now", "mute", "gone", "now", "mute", "mute")
    prior = Prior(history, weight=0.5, decay=0.8)
    (found,) = predict_labels(both.base, replace(question, prior=prior), lambda: None)
    shares = {"now": 2.5 / 6.5, "later": 0.5 / 6.5, "mute": 3.5 / 6.5}
    recent = {"now": 0.8**4 + 0.8**2, "later": 0.0, "mute": 0.8**3 + 0.8 + 1.0}
    own = {label: recent[label] + 0.5 * shares[label] for label in LABELS}
    weights = {
        label: own[label] * (plain["probabilities"][label] / shares[label]) ** 0.5
        for label in LABELS
    }
    for label in LABELS:
        expected = weights[label] / sum(weights.values())
        assert found["probabilities"][label] == pytest.approx(expected, rel=1e-9)
    assert found["label"] == max(weights, key=weights.__getitem__)
