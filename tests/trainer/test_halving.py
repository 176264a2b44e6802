"""Less at once and saved more often, as often as it is asked for and never beyond sense."""

from hypothesis import given
from hypothesis import strategies as st

from trainer.halving import halved_intervals, halved_tokens
from trainer.spec import TrainingSettings


def test_the_defaults_halved() -> None:
    found = [halved_intervals(TrainingSettings(), times) for times in range(5)]
    assert [one.checkpoint_every_steps for one in found] == [10, 5, 2, 1, 1]
    assert [one.checkpoint_every_seconds for one in found] == [120, 60, 30, 15, 7.5]
    assert [halved_tokens(512, times) for times in range(5)] == [512, 256, 128, 64, 64]


@given(
    times=st.integers(0, 60),
    steps=st.integers(1, 10_000),
    seconds=st.floats(0.01, 1e6),
    tokens=st.integers(1, 100_000),
)
def test_never_more_than_asked_for_and_never_nothing(
    times: int, steps: int, seconds: float, tokens: int
) -> None:
    settings = TrainingSettings(checkpoint_every_steps=steps, checkpoint_every_seconds=seconds)
    found, less = halved_intervals(settings, times), halved_intervals(settings, times + 1)
    assert 1 <= less.checkpoint_every_steps <= found.checkpoint_every_steps <= steps
    assert 0 < less.checkpoint_every_seconds <= found.checkpoint_every_seconds <= seconds
    assert less.checkpoint_every_seconds >= min(5.0, seconds)
    assert halved_tokens(tokens, 0) == tokens
    fewer = halved_tokens(tokens, times + 1)
    assert min(64, tokens) <= fewer <= halved_tokens(tokens, times) <= tokens
