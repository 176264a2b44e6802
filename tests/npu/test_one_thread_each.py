"""Parts of a product: all are over when `run` is, well or badly."""

import threading
from functools import partial

import pytest
import torch

from npu.engines.one_thread_each import OneThreadEach


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_what_a_part_raises_is_raised_when_all_are_over(bad: int) -> None:
    threads = OneThreadEach("lorad-for-a-test")
    before = torch.get_num_threads()
    over: list[int] = []

    def part(index: int) -> None:
        if index == bad:
            raise MemoryError(f"part {index}")
        threading.Event().wait(0.1)
        over.append(index)

    for _ in range(2):
        over.clear()
        with pytest.raises(MemoryError, match=f"part {bad}"):
            threads.run([partial(part, index) for index in range(3)])
        assert sorted([*over, bad]) == [0, 1, 2]
        assert torch.get_num_threads() == before
    threads.close()


def test_parts_record_no_gradient_and_keep_no_tensor() -> None:
    threads = OneThreadEach("lorad-for-a-test")
    enabled: list[bool] = []
    freed = threading.Event()

    class Noted:
        def __del__(self) -> None:
            freed.set()

    def run() -> None:
        kept = Noted()
        threads.run([lambda: None, lambda: enabled.append(torch.is_grad_enabled() or not kept)])

    run()
    assert freed.wait(20)
    assert enabled == [False]
    threads.close()
