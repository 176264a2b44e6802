"""How a run computes so that it stays within its memory, settled before its first step.

    settings, model, weight file, adapter, engine, longest example ─▶ plan ─▶ FirstOrder, evaluate

A pure function of these: neither free memory nor time nor what was computed before is asked, so
that a resumed run computes as the interrupted one did. Of all that fit it takes the plan that is
fastest by the rule below, and refuses if none fits. What is left of the budget then goes to decoded
weights, which change no number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainer.halving import halved_tokens
from trainer.memory import MIB, Amounts, Work, predicted_bytes

_MICRO_BATCHES = (512, 384, 256, 192, 128, 96, 64)
_LOGIT_ROWS = (256, 128, 64, 32, 16, 8)
_EVALUATIONS = (512, 256, 128, 64)
_WEIGHTS = 60.0
"""To decode all weights takes as long as so many tokens take to go through them."""
_RECOMPUTATION = 1.3
"""What computing layers again multiplies a step's time by."""
_HEAD = 0.2
"""What all labels of all tokens make of a step's time; labels alone are less."""
_EVALUATION = 0.1
"""An evaluation's share of a run's time."""

_UNBOUNDED_LOGITS = 1 << 24
"""Numbers of the largest piece of logits in a run without a budget: 64 MiB."""


class BudgetError(ValueError):
    """Not even the smallest plan is within the budget; the message says what would help."""


@dataclass(frozen=True)
class Choices:
    """What a run's settings leave to the plan, None, and what they don't."""

    micro_batch_tokens: int | None = None
    recompute: bool | None = None


def plan(
    work: Work, budget: int | None, choices: Choices = Choices(), halvings: int = 0
) -> Amounts:
    """The fastest amounts that stay within the budget.

    Args:
        work: what is to be computed.
        budget: bytes of the whole process; None, for a run of an earlier lorad, doesn't bound it.
        choices: what isn't to be chosen here.
        halvings: how often the run gets less because it was killed again and again: a half of what
            the budget leaves above the smallest plan, and of a number of tokens that was given.

    Raises:
        BudgetError: if not even the smallest plan fits.
    """
    if choices.micro_batch_tokens is not None:
        given = halved_tokens(choices.micro_batch_tokens, halvings)
        choices = replace(choices, micro_batch_tokens=given)
    if budget is None:
        return _unbounded(work, choices, halvings)
    plans = {one: predicted_bytes(work, one) for one in _plans(work, choices)}
    least = min(plans.values())
    if least > budget:
        raise BudgetError(
            f"expected a run that fits into {budget // MIB} MB of memory, found that"
            f" {math.ceil(least / MIB)} MB are needed for one example of {work.longest_example}"
            f" tokens; set LORAD_MEMORY_MB to that and train again, or make an adapter with a"
            f" smaller max_tokens or rank or a smaller base model"
        )
    within = least + ((budget - least) >> halvings)
    fitting = (one for one, found in plans.items() if found <= within)
    fastest = min(fitting, key=lambda one: (_time(one), -one.keep_tokens))
    settled = fastest if choices.recompute else _keeping_more(fastest, work, within)
    left = within - predicted_bytes(work, settled)
    return replace(settled, decoded_bytes=min(left, work.decodable_bytes))


def _unbounded(work: Work, choices: Choices, halvings: int) -> Amounts:
    tokens = choices.micro_batch_tokens or halved_tokens(512, halvings)
    return Amounts(
        micro_batch_tokens=tokens,
        keep_tokens=max(tokens, work.longest_example) if choices.recompute is False else 0,
        logit_rows=max(1, _UNBOUNDED_LOGITS // work.config.vocab_size),
        evaluation_tokens=halved_tokens(512, halvings),
    )


def _plans(work: Work, choices: Choices) -> Iterator[Amounts]:
    """All that come into question."""
    given = choices.micro_batch_tokens
    for tokens in _MICRO_BATCHES if given is None else (given,):
        most = max(tokens, work.longest_example)
        kept = {None: {0, tokens}, True: {0}, False: {most}}[choices.recompute]
        for keep in kept:
            for rows in _LOGIT_ROWS:
                for evaluation in _EVALUATIONS:
                    yield Amounts(tokens, keep, rows, evaluation)


def _time(one: Amounts) -> float:
    """Of a token, in no unit."""
    again = 1.0 if one.micro_batch_tokens <= one.keep_tokens else _RECOMPUTATION
    return (
        again * (1 + _WEIGHTS / one.micro_batch_tokens)
        + _HEAD * (1 + _WEIGHTS / one.logit_rows)
        + _EVALUATION * (1 + _WEIGHTS / one.evaluation_tokens)
    )


def _keeping_more(one: Amounts, work: Work, within: int) -> Amounts:
    """The same, with everything kept also of examples that are longer than a micro-batch."""
    most = one.most_tokens(work)
    if predicted_bytes(work, replace(one, keep_tokens=most)) <= within:
        return replace(one, keep_tokens=most)
    fits, too_many = one.keep_tokens, most
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if predicted_bytes(work, replace(one, keep_tokens=middle)) <= within:
            fits = middle
        else:
            too_many = middle
    return replace(one, keep_tokens=fits)
