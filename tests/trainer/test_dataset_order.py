"""Properties of the order in which steps see examples."""

from hypothesis import given
from hypothesis import strategies as st

from trainer.dataset import batch_ids, epoch_order

ids_lists = st.lists(st.integers(1, 10_000), min_size=1, max_size=60, unique=True)


@given(ids_lists, st.integers(0, 5), st.integers(1, 12), st.integers(0, 30))
def test_steps_walk_through_whole_epochs(
    ids: list[int], seed: int, batch_size: int, steps: int
) -> None:
    seen = [i for step in range(steps) for i in batch_ids(ids, seed, batch_size, step)]
    assert len(seen) == steps * min(batch_size, len(ids))
    for start in range(0, len(seen) - len(ids) + 1, len(ids)):
        assert sorted(seen[start : start + len(ids)]) == sorted(ids)


@given(ids_lists, st.integers(0, 5), st.integers(0, 5), st.data())
def test_a_deleted_example_moves_no_other(
    ids: list[int], seed: int, epoch: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(ids))
    kept = [i for i in epoch_order(ids, seed, epoch) if i != gone]
    assert kept == epoch_order([i for i in ids if i != gone], seed, epoch)


def test_epochs_and_seeds_differ() -> None:
    ids = list(range(1, 101))
    orders = {tuple(epoch_order(ids, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert tuple(ids) not in orders
