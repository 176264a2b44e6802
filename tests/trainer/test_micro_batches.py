"""A batch is cut so that nothing is lost, nothing is over the limit, and least is computed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from npu.pieces import BUCKETS
from tests.trainer.oracle import TINY, make_pair, randomise_b, relative_error
from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.loss import pack_for_loss
from trainer.methods.first_order import FirstOrder
from trainer.micro_batches import RowCosts, micro_batches, packed_tokens, padded

SMOLLM2 = replace(
    TINY,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    vocab_size=49_152,
)
COSTS = RowCosts.of(SMOLLM2, BUCKETS)


def example(number: int, own: int, answer: int, shared: int = 3) -> TokenExample:
    """Its prompt begins as all others', and goes on as no other's."""
    return TokenExample(number, (*range(shared), *[1000 + number] * own), (7,) * answer, "")


batches = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 40)), min_size=1, max_size=7).map(
    lambda rows: [example(number, *row) for number, row in enumerate(rows)]
)
costs = st.sampled_from([None, COSTS, RowCosts.of(TINY, (8, 64))])


@given(batches, st.integers(1, 600), costs)
def test_every_cut_keeps_order_and_limit(
    batch: list[TokenExample], limit: int, given_costs: RowCosts | None
) -> None:
    parts = micro_batches(batch, limit, given_costs)
    assert [one for _, part in parts for one in part] == batch
    for shared, part in parts:
        packed, _, _ = pack_for_loss(part, shared)
        assert len(packed.ids) == packed_tokens(shared, part)
        assert len(packed.ids) <= limit or len(part) == 1
    assert parts == micro_batches(batch, limit, given_costs)


@given(batches, st.integers(1, 600), costs)
def test_no_other_cut_costs_less(
    batch: list[TokenExample], limit: int, given_costs: RowCosts | None
) -> None:
    found = micro_batches(batch, limit, given_costs)
    shared = found[0][0]

    def cost(parts: Sequence[Sequence[TokenExample]]) -> float:
        if given_costs is None:
            return len(parts)
        return sum(
            given_costs.of_part(packed_tokens(shared, part), sum(len(e.answer) for e in part))
            for part in parts
        )

    others = []
    for cuts in product((False, True), repeat=len(batch) - 1):
        ends = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(batch)]
        parts = [batch[start:end] for start, end in pairwise(ends)]
        if all(len(part) == 1 or packed_tokens(shared, part) <= limit for part in parts):
            others.append(cost(parts))
    assert cost([part for _, part in found]) == min(others)


def test_without_buckets_a_part_is_as_full_as_can_be() -> None:
    batch = [example(number, own, 1, shared=0) for number, own in enumerate((50, 40, 30, 90, 5))]
    assert [len(part) for _, part in micro_batches(batch, 100)] == [2, 1, 2]


def test_buckets_are_filled() -> None:
    batch = [example(number, own, 1) for number, own in enumerate((57, 80, 170))]
    costs = RowCosts((64, 128, 256), token=100, answer=1)

    def cut(given_costs: RowCosts | None) -> list[tuple[int, int]]:
        parts = micro_batches(batch, 256, given_costs)
        return [(len(part), padded(packed_tokens(one, part), costs.buckets)) for one, part in parts]

    assert cut(None) == [(2, 128 + 64), (1, 128 + 64)]
    assert cut(costs) == [(1, 64), (2, 256)]


def test_personal_examples_are_hardly_filled_up() -> None:
    """48 tokens of instructions, 72 on average, against a cut when the limit is reached."""
    chance = random.Random(3)
    tokens, rows = {None: 0, COSTS: 0}, {None: 0, COSTS: 0}
    one_bucket = 0
    for _ in range(60):
        lengths = [min(max(3, int(chance.lognormvariate(3.0, 0.8))), 300) for _ in range(16)]
        batch = [example(n, own, chance.randint(2, 6), shared=48) for n, own in enumerate(lengths)]
        for given_costs in (None, COSTS):
            for shared, part in micro_batches(batch, 512, given_costs):
                count = packed_tokens(shared, part)
                tokens[given_costs] += count
                rows[given_costs] += padded(count, BUCKETS)
                if given_costs is None:
                    one_bucket += next(bucket for bucket in BUCKETS if bucket >= count)
    share = 1 - tokens[COSTS] / rows[COSTS]
    assert share < 0.08
    assert share < 0.8 * (1 - tokens[None] / rows[None])
    assert share < 0.5 * (1 - tokens[None] / one_bucket)
    assert rows[COSTS] < rows[None]


def test_another_cut_gives_the_same_gradients_on_an_engine_with_buckets(tmp_path: Path) -> None:
    """On half-precision products, as far as their rounding lets compare: against torch_cpu."""
    found = {}
    batch = [
        TokenExample(number, (5, 6, 7, *range(20, 20 + own)), (3 + number, 9), "")
        for number, own in enumerate((8, 25, 60, 2, 14))
    ]
    for engine, limit in (("torch_cpu", 512), ("onnx_cpu", 512), ("onnx_cpu", 64)):
        pair = make_pair(tmp_path, engine=engine)
        adapter = LoraAdapter(pair.config, rank=2, alpha=4.0)
        randomise_b(adapter)
        costs = RowCosts.of(pair.config, pair.engine.buckets) if pair.engine.buckets else None
        method = FirstOrder(pair.decoder, adapter, micro_batch_tokens=limit, recompute=True)
        method.accumulate(batch)
        parts = [len(part) for _, part in micro_batches(batch, limit, costs)]
        found[engine, limit] = adapter.gradient.clone(), parts
        rows = pair.engine.report()["rows"]
        assert (rows["padded"] == 0) is (engine == "torch_cpu")
    assert found["onnx_cpu", 512][1] != found["onnx_cpu", 64][1]
    exact, _ = found["torch_cpu", 512]
    for limit in (512, 64):
        assert relative_error(found["onnx_cpu", limit][0], exact) < 5e-3
