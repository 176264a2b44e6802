import numpy as np
import pytest

from npu.format_shares import format_shares
from npu.weights import MatrixSource, WeightFormat
from service.cli.model import WeightFormat as CommandLineFormat
from trainer.weight_plan import (
    DEFAULT_FORMAT,
    FORMAT_CHOICES,
    FormatChoice,
    plan_formats,
)


def source(name: str, N: int, K: int, native: WeightFormat | None = None) -> MatrixSource:
    return MatrixSource(name, (N, K), lambda: np.ones((N, K), np.float32), native)


SOURCES = [
    source("layers.0.mlp.gate_up_proj", 24, 64, "int4_min"),
    source("layers.0.mlp.down_proj", 8, 80),
    source("layers.1.mlp.gate_up_proj", 24, 64, "int4"),
    source("layers.1.mlp.down_proj", 8, 96),
    source("embed_tokens", 10, 64),
    source("lm_head", 10, 64, "int4"),
]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("int8", ["int8"] * 6),
        ("fp16", ["fp16"] * 6),
        ("int4", ["int4", "int8", "int4", "int4", "int8", "int4"]),
        ("int4_min", ["int4_min", "int8", "int4_min", "int4_min", "int8", "int8"]),
        ("native", ["int4_min", "int8", "int4", "int8", "int8", "int4"]),
    ],
)
def test_each_matrix_gets_what_it_can_have(
    choice: FormatChoice, expected: list[WeightFormat]
) -> None:
    """80 columns are no whole blocks; embedding and head stay int8 unless the source has them."""
    assert list(plan_formats(choice, SOURCES).values()) == expected
    assert list(plan_formats(choice, SOURCES)) == [each.name for each in SOURCES]


def test_shares_add_up() -> None:
    formats = plan_formats("native", SOURCES)
    shares = format_shares((formats[source.name], source.shape) for source in SOURCES)
    assert shares == {
        "int4_min": {"matrices": 1, "parameters": 1536, "bytes": 768 + 2 * 96},
        "int8": {"matrices": 3, "parameters": 640 + 768 + 640, "bytes": 2048 + 4 * (8 + 8 + 10)},
        "int4": {"matrices": 2, "parameters": 1536 + 640, "bytes": 1088 + 2 * (48 + 20)},
    }
    assert list(shares) == ["int4_min", "int8", "int4"]


def test_the_command_line_offers_what_there_is() -> None:
    assert tuple(CommandLineFormat) == FORMAT_CHOICES
    assert DEFAULT_FORMAT in FORMAT_CHOICES
