"""Which label does each input have: the scorer of the holdout, as probabilities of the labels.

    p(label) = exp(LL(label)) / sum of exp(LL(other)) over the declared labels

LL is the summed log-likelihood of the label's tokens and the end token after the prompt. Each input
is a pass of its own: packed together, inputs would change the shapes of each other's products, and
with them the last bits of the answers. So each answer is the same bits whatever else is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.correction import DEFAULT, Correction
from trainer.dataset import TokenExample
from trainer.evaluate import answer_scores
from trainer.lora import LoraAdapter
from trainer.predict.base import OpenBase
from trainer.predict.question import LabelQuestion, Prior
from trainer.predict.refused import Refused
from trainer.predict.room import LOGIT_ROWS
from trainer.predict.shelf import adapter_bytes
from trainer.priors import Scores, corrected, global_shares, normalised, own_prior
from trainer.tokens import TokenizerError


def predict_labels(
    base: OpenBase, question: LabelQuestion, look: Callable[[], None]
) -> list[dict[str, Any]]:
    """The answer for each input, JSON-able, in their order.

    Args:
        base: the model.
        question: for it.
        look: called before each input; may raise to stop.

    Raises:
        Refused: if something asked can't be answered; then nothing is.
        FloatingPointError: if a score isn't finite.
    """
    adapter = base.adapter(question.head)
    answers = _answers(base, question.labels)
    most = base.room.label_tokens(adapter_bytes(adapter))
    examples = []
    for place, text in enumerate(question.inputs):
        look()
        examples.append(_example(base, question, answers, place, text, most))
    found = []
    for example, cut in examples:
        look()
        scores = _scores(base, adapter, example, answers)
        found.append(_prediction(scores, question, cut))
    return found


def _answers(base: OpenBase, labels: Sequence[str]) -> dict[str, Sequence[int]]:
    answers: dict[str, Sequence[int]] = {}
    for place, label in enumerate(labels):
        try:
            answers[label] = base.tokenizer.answer_ids(label)
        except Exception:
            raise Refused(
                422,
                f"labels.{place}: expected a label that the model's tokenizer can write, found one"
                " that doesn't come back the same; leave it out",
                f"labels.{place}",
            ) from None
    return answers


def _example(
    base: OpenBase,
    question: LabelQuestion,
    answers: Mapping[str, Sequence[int]],
    place: int,
    text: str,
    most: int,
) -> tuple[TokenExample, int]:
    """The input as tokens, and how many of them were cut.

    Cut so that the longest label fits behind it: nobody knows yet which one it will be.
    """
    field = f"inputs.{place}"
    longest = max(answers, key=lambda label: len(answers[label]))
    context = base.decoder.config.max_position_embeddings
    limit = min(question.max_tokens, context)
    try:
        encoded, cut = base.tokenizer.cut(text, longest, limit)
    except TokenizerError as error:
        raise Refused(422, f"{field}: {error}", field) from None
    except Exception as error:  # tokenizer and template may quote what they were given
        raise Refused(
            422,
            f"{field}: expected a text that the model's chat template takes, found a"
            f" {type(error).__name__}; correct it and ask again",
            field,
        ) from None
    if cut and question.too_long == "refuse":
        found = len(encoded.prompt) + cut + len(encoded.answer)
        raise Refused(
            422,
            f"{field}: expected at most {limit} tokens with the longest label, found {found};"
            " shorten it, or make the adapter with too_long = cut",
            field,
        )
    branches = sum(len(answer) - 1 for answer in answers.values())
    if (packed := len(encoded.prompt) + branches) > most:
        raise Refused(
            422,
            f"{field}: expected at most {most} tokens with all labels, which is what fits into the"
            f" memory, found {packed}; raise LORAD_MEMORY_MB or shorten it",
            field,
        )
    return TokenExample(place, encoded.prompt, encoded.answer, longest), cut


def _scores(
    base: OpenBase,
    adapter: LoraAdapter | None,
    example: TokenExample,
    answers: Mapping[str, Sequence[int]],
) -> dict[str, float]:
    shared = len(example.prompt)
    (scores,) = answer_scores(base.decoder, adapter, [example], shared, answers, LOGIT_ROWS)
    for score in scores.values():
        if not math.isfinite(score):
            raise FloatingPointError(f"expected finite scores of the labels, found {score}")
    return scores


def _prediction(scores: Mapping[str, float], question: LabelQuestion, cut: int) -> dict[str, Any]:
    rows = np.array([[scores[label] for label in question.labels]])
    if question.prior is None:
        logs = normalised(rows)[0]
    else:
        logs = _corrected(rows, question.labels, question.prior)[0]
    probabilities = dict(zip(question.labels, map(float, np.exp(logs)), strict=True))
    return {
        "label": question.labels[int(logs.argmax())],
        "probabilities": probabilities,
        "cut_tokens": cut,
    }


def _corrected(rows: Scores, labels: Sequence[str], prior: Prior) -> Scores:
    """The scores joined with the client's own labels; those no longer declared are left out."""
    known = [label for label in prior.history if label in labels]
    correction = Correction(DEFAULT.smoothing, prior.decay, prior.weight)
    shares = global_shares(labels, known)
    return corrected(rows, own_prior(known, labels, shares, correction), shares, correction)
