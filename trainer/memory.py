"""What a run takes of memory at its peak, as far as that can be known before it begins.

    program │ weights │ decoded weights │ tiles │ 4 · adapter │ examples │ what a backward pass
    needs │ the greediest of: a step, an evaluation, a checkpoint, which come one after the other

Everything counts that the system counts (VmHWM): Python and torch, the mapped weights, what is kept
for the backward pass, logits. An upper bound, with figures that were measured on x86 with glibc
(`tests/trainer/test_memory.py`); of a phone's allocator and libraries, and of what an NPU's driver
holds, nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu.engine import Engine
from npu.weights import FrozenWeights
from trainer.lora import LoraAdapter
from trainer.models.attention import QUERIES_AT_ONCE
from trainer.models.config import DecoderConfig
from trainer.models.keep import numbers_kept
from trainer.models.layout import linear_shape

MIB = 1 << 20
_FLOAT = 4

_PROGRAM = {"torch_cpu": 285 * MIB}
"""Python, torch, the database and the tokenizer: their code and their heaps."""
_PROGRAM_WITH_GRAPHS = 580 * MIB
"""The same with onnxruntime and its sessions."""
_TILES = 8 * MIB
"""A piece of the weights in fp32 and what it takes to make it, in each thread."""
_TOKEN = 4
_HEAP = 56 * MIB
"""What the allocator's heap takes beside the short-lived tensors of the layer that is under way:
holes, and a top that isn't given back."""
_DOUBLES = 7
"""To score it, a row of logits takes that many times what it takes itself."""


@dataclass(frozen=True)
class Work:
    """What of a run decides how much memory it takes."""

    config: DecoderConfig
    weight_bytes: int
    """Of the weight file, which is mapped and read from end to end."""
    rank: int
    targets: tuple[str, ...]
    layers: int
    """How many, from the top, are adapted."""
    engine: str
    threads: int
    longest_example: int
    """Tokens; an example of so many is computed whole, whatever a micro-batch may hold."""
    longest_evaluation: int
    """Tokens of the longest example together with the answers of all labels."""
    examples: int
    """How many there are."""
    decodable_bytes: int = 0
    """See `Engine.decodable_bytes`."""

    @property
    def ranks(self) -> int:
        """Of all adapters of a layer together."""
        return self.rank * len(self.targets)

    @classmethod
    def of(
        cls,
        adapter: LoraAdapter,
        weights: FrozenWeights,
        engine: Engine,
        *,
        longest_example: int,
        longest_evaluation: int,
        examples: int,
    ) -> Work:
        """Of training this adapter on these weights and engine; for the others see above."""
        return cls(
            config=adapter.config,
            weight_bytes=weights.bytes,
            rank=adapter.rank,
            targets=adapter.targets,
            layers=len(adapter.layers),
            engine=engine.name,
            threads=engine.options.threads,
            longest_example=longest_example,
            longest_evaluation=longest_evaluation,
            examples=examples,
            decodable_bytes=engine.decodable_bytes,
        )


@dataclass(frozen=True)
class Amounts:
    """How much is computed at once, and what is kept of it."""

    micro_batch_tokens: int
    keep_tokens: int
    """Of a micro-batch of at most so many tokens all that the backward pass needs is kept; of a
    larger one each layer's input, and the rest is computed again."""
    logit_rows: int
    """Rows of logits that exist at a time."""
    evaluation_tokens: int
    decoded_bytes: int = 0
    """See `Engine.keep_decoded`."""

    def numbers(self) -> dict[str, int]:
        """Those that decide how a step's sums are rounded, by name; what is kept doesn't."""
        return {"micro_batch_tokens": self.micro_batch_tokens, "logit_rows": self.logit_rows}

    @property
    def scored_rows(self) -> int:
        """The same in an evaluation, which takes more for each."""
        return max(1, self.logit_rows // _DOUBLES)

    def most_tokens(self, work: Work) -> int:
        """Of the largest micro-batch."""
        return max(self.micro_batch_tokens, work.longest_example)


def predicted(work: Work, amounts: Amounts) -> dict[str, int]:
    """Bytes at the peak, by what they are for."""
    passing = _passing(work, amounts)
    greediest = max(passing, key=passing.__getitem__)
    return {**_lasting(work, amounts), greediest: passing[greediest]}


def predicted_bytes(work: Work, amounts: Amounts) -> int:
    """Of the whole process."""
    return sum(predicted(work, amounts).values())


def lasting_bytes(work: Work, amounts: Amounts) -> int:
    """Of what stays between steps and evaluations."""
    return sum(_lasting(work, amounts).values())


def passing_bytes(work: Work, amounts: Amounts) -> int:
    """Of the greediest of what comes and goes."""
    return max(_passing(work, amounts).values())


def _lasting(work: Work, amounts: Amounts) -> dict[str, int]:
    return {
        "program": _PROGRAM.get(work.engine, _PROGRAM_WITH_GRAPHS),
        "weights": work.weight_bytes,
        "tiles": work.threads * _TILES,
        "adapter with its gradient and moments": 4 * _adapter(work),
        "examples": _TOKEN * work.examples * work.longest_example,
        "decoded weights": amounts.decoded_bytes,
        "kept for the backward pass": _FLOAT * _kept(work, amounts),
    }


def _passing(work: Work, amounts: Amounts) -> dict[str, int]:
    """What comes one after the other."""
    return {
        "a step": _HEAP + _FLOAT * _step(work, amounts),
        "an evaluation": _HEAP + _FLOAT * _evaluation(work, amounts),
        "a checkpoint": 3 * _adapter(work),
    }


def _adapter(work: Work) -> int:
    """Bytes of its tensors."""
    shapes = [linear_shape(work.config, target) for target in work.targets]
    return _FLOAT * work.layers * work.rank * sum(out + inputs for out, inputs in shapes)


def _kept(work: Work, amounts: Amounts) -> int:
    """Numbers of the room that a step's passes have one after the other, and that stays."""
    most = amounts.most_tokens(work)
    whole = min(amounts.keep_tokens, most)
    return numbers_kept(work.config, work.layers, work.ranks, whole, most)


def _step(work: Work, amounts: Amounts) -> int:
    """Numbers beside what is kept: the layer that is under way, and logits."""
    config, most = work.config, amounts.most_tokens(work)
    hidden, ffn = config.hidden_size, config.intermediate_size
    q, kv = config.query_width, config.key_value_width
    mlp = hidden + 6 * ffn  # silu, its slope, and the gradients around them
    attention = 4 * hidden + 5 * q + 6 * kv  # turned heads and their gradients
    again = numbers_kept(config, 1, work.ranks, 1, 0) if amounts.keep_tokens < most else 0
    layer = most * (3 * hidden + max(mlp, attention) + again)
    logits = min(amounts.logit_rows, most) * config.vocab_size + 3 * most * hidden
    return layer + _scores(config, most) + logits


def _evaluation(work: Work, amounts: Amounts) -> int:
    config = work.config
    tokens = max(amounts.evaluation_tokens, work.longest_evaluation)
    q, kv = config.query_width, config.key_value_width
    layer = tokens * (5 * config.hidden_size + 3 * q + 4 * kv + 3 * config.intermediate_size)
    logits = _DOUBLES * amounts.scored_rows * config.vocab_size + tokens * config.hidden_size
    return layer + _scores(config, tokens) + logits


def _scores(config: DecoderConfig, tokens: int) -> int:
    """Of the attention's piece that is under way, and the mask."""
    return tokens * (4 * QUERIES_AT_ONCE * config.num_attention_heads + tokens)
