"""The room for what a backward pass needs: the same numbers, and never two tensors in one place."""

from pathlib import Path

import torch

from tests.trainer.oracle import TINY, make_pair, randomise_b
from tests.trainer.test_lora_gradients import BATCH, HEAD
from trainer.lora import LoraAdapter
from trainer.loss import answer_loss
from trainer.models.keep import Keep, numbers_kept


def test_tensors_lie_one_behind_the_other_until_there_is_no_room() -> None:
    room = Keep(10)
    first, second = torch.arange(6.0).view(2, 3), torch.arange(4.0)
    kept, also = room.keep(first.t()), room.keep(second)
    assert torch.equal(kept, first.t())
    assert kept.is_contiguous()
    assert torch.equal(also, second)
    third = torch.ones(1)
    assert room.keep(third) is third
    first.fill_(9.0)
    assert kept.max() == 5.0, "a copy"
    room.begin()
    assert room.keep(third).data_ptr() == kept.data_ptr()


def test_a_pass_in_a_room_has_the_same_bits_whatever_fits(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    adapter = LoraAdapter(pair.config, rank=3, alpha=6.0)
    randomise_b(adapter)
    tokens = len(HEAD) + sum(len(e.prompt) - len(HEAD) + len(e.answer) - 1 for e in BATCH)
    whole = numbers_kept(pair.config, TINY.num_hidden_layers, 3 * 7, tokens, 0)
    found = {}
    for numbers in (0, whole // 3, whole):
        for recompute in (False, True):
            room = Keep(numbers)
            for _ in range(2):
                adapter.gradient.zero_()
                answer_loss(pair.decoder, adapter, BATCH, len(HEAD), recompute=recompute, room=room)
            found[numbers, recompute] = adapter.gradient.clone()
    assert all(torch.equal(one, found[0, False]) for one in found.values())
    assert found[0, False].any()
