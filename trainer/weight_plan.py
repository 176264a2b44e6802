"""Which format each matrix of a base model takes, from the one word that `--format` gives.

    int8, fp16        every matrix
    int4, int4_min    every linear; the embedding and the head stay int8
    native            what the source has in 4 bits keeps its values, all else is int8
    auto              as a calibration on this model shows (`trainer/calibration`); not planned here

SmolLM2's embedding, which is its head too, shows why those stay int8: int8 is off by 1.2 %
(Frobenius), int4_min by 8.2 % and int4 by 10.6 %. On prose int4_min there costs 0.095 nats a token
and saves 0.08 bytes a parameter. 4-bit GGUF files keep them in 8 bits as well.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from npu.weight_layout import BLOCK, BLOCK_FORMATS, WeightFormat
from npu.weights import MatrixSource

FormatChoice = Literal["int8", "fp16", "int4", "int4_min", "native"]
"""What `--format` may say."""

FORMAT_CHOICES: tuple[FormatChoice | Literal["auto"], ...] = (*get_args(FormatChoice), "auto")
DEFAULT_FORMAT: FormatChoice = "native"
"""The knee of `bench.frontier`: on SmolLM2-135M 0.71 bytes a parameter and adapter gradients 2.7 %
from fp32's, where int8 everywhere takes 1.01 and is 9.2 % off, and what is smaller is 20 % off and
more. A source without 4-bit weights is int8 either way."""

_ROW_TABLES = ("embed_tokens", "lm_head")


def plan_formats(choice: FormatChoice, sources: Sequence[MatrixSource]) -> dict[str, WeightFormat]:
    """Each matrix's format by name."""
    return {source.name: _format(choice, source) for source in sources}


def _format(choice: FormatChoice, source: MatrixSource) -> WeightFormat:
    """A matrix whose columns can't be cut into blocks is int8 where others have 4 bits."""
    if choice == "native":
        return source.native or "int8"
    if choice not in BLOCK_FORMATS or source.native == choice:
        return choice
    stays = source.name in _ROW_TABLES or source.shape[1] % BLOCK
    return "int8" if stays else choice
