"""How well the labels of held-out examples are predicted; base and adapter by the same ruler.

A label's score is the summed log-likelihood of its tokens and the end token after the prompt, under
the model's own chat template: the probability that the answer is exactly this label. The prediction
is the label with the highest score. All labels of a prompt are branches of one packed sequence, so
the prompt is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.models.decoder import Decoder
from trainer.packing import SegmentTree, common_prefix

TOKENS_AT_ONCE = 512
"""Packed tokens of one pass where memory is plenty."""
_LOGIT_ROWS = 64


@dataclass(frozen=True)
class RowScore:
    """One held-out example, scored; its text and its label are nowhere in it."""

    example_id: int
    predicted: str | None
    """The label with the highest score; None if the adapter declares no labels."""
    label_nll: float | None
    """-log of the true label's share of the probability of all declared labels."""
    answer_nll: float
    """-log likelihood of the true answer, summed over its tokens."""
    answer_tokens: int


@dataclass(frozen=True)
class Evaluation:
    """The scores of a whole holdout."""

    rows: list[RowScore]

    def only(self, kept: Container[int]) -> Evaluation:
        """The same without the rows of other examples than these."""
        return Evaluation([row for row in self.rows if row.example_id in kept])

    def summary(self, labels: Mapping[int, str]) -> dict[str, float | None]:
        """Mean token loss, mean label NLL and accuracy; the latter two None without labels.

        Args:
            labels: the true label of each row, by example id.
        """
        if not self.rows:
            return {"loss": None, "label_nll": None, "accuracy": None}
        tokens = sum(row.answer_tokens for row in self.rows)
        nlls = [row.label_nll for row in self.rows if row.label_nll is not None]
        right = [
            row.predicted == labels[row.example_id]
            for row in self.rows
            if row.predicted is not None
        ]
        return {
            "loss": sum(row.answer_nll for row in self.rows) / tokens,
            "label_nll": sum(nlls) / len(nlls) if nlls else None,
            "accuracy": sum(right) / len(right) if right else None,
        }


def evaluate(
    decoder: Decoder,
    adapter: LoraAdapter | None,
    holdout: Mapping[int, TokenExample],
    label_answers: Mapping[str, Sequence[int]],
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    tokens_at_once: int = TOKENS_AT_ONCE,
    logit_rows: int = _LOGIT_ROWS,
) -> Evaluation:
    """Score held-out examples.

    Args:
        decoder: the base model.
        adapter: None measures the bare base.
        holdout: the examples by id. One that `progress` removes from it is no longer scored.
        label_answers: the answer tokens (label, end token) of each declared label; empty if the
            adapter declares none, and then only the true answer is scored.
        progress: called with (done, total); may raise to stop.
        tokens_at_once: packed tokens of one pass; a longer example is a pass of its own.
        logit_rows: how many rows of logits exist at a time.

    Raises:
        FloatingPointError: if a score isn't finite.
    """
    examples = list(holdout.values())
    shared = common_prefix([example.prompt for example in examples])
    branches = sum(len(answer) - 1 for answer in label_answers.values())
    rows: list[RowScore] = []
    for done, part in passes(examples, shared, branches, tokens_at_once, holdout):
        if part:
            rows += _rows(decoder, adapter, part, shared, label_answers, logit_rows)
        progress(done, len(examples))
    return Evaluation([row for row in rows if row.example_id in holdout])


def passes(
    examples: Sequence[TokenExample],
    shared: int,
    branches: int,
    tokens_at_once: int,
    wanted: Container[int] | None = None,
) -> Iterator[tuple[int, list[TokenExample]]]:
    """Cut examples, in order, into those that are scored at once.

    Args:
        examples: what is to be scored.
        shared: leading tokens that all their prompts share.
        branches: tokens of the labels' answers behind each prompt.
        tokens_at_once: packed tokens of one pass; a longer example is a pass of its own.
        wanted: ids; an example that is no longer among them when its turn comes is left out.

    Yields:
        How many examples are over with it, and the pass; the last one may be empty.
    """
    part: list[TokenExample] = []
    used = shared
    for place, example in enumerate(examples):
        own = len(example.prompt) - shared + max(branches, len(example.answer) - 1)
        if part and used + own > tokens_at_once:
            yield place, part
            part, used = [], shared
        if wanted is None or example.id in wanted:
            part.append(example)
            used += own
    if examples:
        yield len(examples), part


@torch.no_grad()
def answer_scores(
    decoder: Decoder,
    adapter: LoraAdapter | None,
    examples: Sequence[TokenExample],
    shared: int,
    label_answers: Mapping[str, Sequence[int]],
    logit_rows: int = _LOGIT_ROWS,
) -> list[dict[str, float]]:
    """The summed log-likelihood of each label after each example's prompt, in one pass.

    Args:
        decoder: the base model.
        adapter: None scores with the bare base.
        examples: at least one.
        shared: leading tokens that all their prompts share, computed once.
        label_answers: see `evaluate`; if empty, each example's own answer is scored.
        logit_rows: see `evaluate`.
    """
    tree = SegmentTree()
    root = tree.add(examples[0].prompt[:shared])
    rows: list[int] = []
    targets: list[int] = []
    spans: list[dict[str, slice]] = []
    for example in examples:
        prompt = tree.add(example.prompt[shared:], root)
        spans.append({})
        for label, answer in (label_answers or {example.label: example.answer}).items():
            first = len(tree)
            tree.add(answer[:-1], prompt)
            start = len(targets)
            rows += [tree.last_row(prompt), *range(first, len(tree))]
            targets += answer
            spans[-1][label] = slice(start, len(targets))
    distinct, place = torch.unique(torch.tensor(rows), return_inverse=True)
    hidden = decoder.hidden(tree.pack(), adapter, distinct)
    found = _log_likelihoods(decoder, hidden, place, torch.tensor(targets), logit_rows)
    return [{label: float(found[span].sum()) for label, span in own.items()} for own in spans]


def _rows(
    decoder: Decoder,
    adapter: LoraAdapter | None,
    examples: Sequence[TokenExample],
    shared: int,
    label_answers: Mapping[str, Sequence[int]],
    logit_rows: int,
) -> list[RowScore]:
    scores = answer_scores(decoder, adapter, examples, shared, label_answers, logit_rows)
    return [
        _row(example, found, bool(label_answers))
        for example, found in zip(examples, scores, strict=True)
    ]


def _log_likelihoods(
    decoder: Decoder,
    hidden: torch.Tensor,
    rows: torch.Tensor,
    targets: torch.Tensor,
    logit_rows: int,
) -> torch.Tensor:
    """Of each target token after its row of the states, float64 [targets]."""
    found = torch.empty(len(targets), dtype=torch.float64)
    for start in range(0, len(hidden), logit_rows):
        here = (rows >= start) & (rows < start + logit_rows)
        logits = decoder.logits(hidden[start : start + logit_rows])
        log_probabilities = torch.log_softmax(logits.double(), dim=-1)
        found[here] = log_probabilities[rows[here] - start, targets[here]]
    return found


def _row(example: TokenExample, scores: Mapping[str, float], declared: bool) -> RowScore:
    answer_nll = -scores[example.label]
    if not math.isfinite(answer_nll):
        raise FloatingPointError(f"expected finite scores of the holdout, found {answer_nll}")
    if not declared:
        return RowScore(example.id, None, None, answer_nll, len(example.answer))
    total = float(torch.logsumexp(torch.tensor(list(scores.values()), dtype=torch.float64), 0))
    return RowScore(
        example.id,
        max(scores, key=scores.__getitem__),
        total + answer_nll,
        answer_nll,
        len(example.answer),
    )
