"""Less at once and saved more often, as often as it is asked for and never beyond sense."""

from hypothesis import given
from hypothesis import strategies as st

from trainer.halving import means
from trainer.spec import TrainingSettings


def test_the_defaults_halved() -> None:
    found = [means(TrainingSettings(), times) for times in range(5)]
    assert [one.checkpoint_every_steps for one in found] == [10, 5, 2, 1, 1]
    assert [one.checkpoint_every_seconds for one in found] == [120, 60, 30, 15, 7.5]
    assert [one.micro_batch_tokens for one in found] == [512, 256, 128, 64, 64]
    assert [one.evaluation_tokens for one in found] == [512, 256, 128, 64, 64]


@given(
    times=st.integers(0, 60),
    steps=st.integers(1, 10_000),
    seconds=st.floats(0.01, 1e6),
    tokens=st.integers(1, 100_000),
)
def test_never_more_than_asked_for_and_never_nothing(
    times: int, steps: int, seconds: float, tokens: int
) -> None:
    settings = TrainingSettings(
        checkpoint_every_steps=steps, checkpoint_every_seconds=seconds, micro_batch_tokens=tokens
    )
    found, less = means(settings, times), means(settings, times + 1)
    assert means(settings, 0).micro_batch_tokens == tokens
    assert 1 <= less.checkpoint_every_steps <= found.checkpoint_every_steps <= steps
    assert 0 < less.checkpoint_every_seconds <= found.checkpoint_every_seconds <= seconds
    assert min(64, tokens) <= less.micro_batch_tokens <= found.micro_batch_tokens <= tokens
    assert less.checkpoint_every_seconds >= min(5.0, seconds)
