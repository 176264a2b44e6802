"""ggml's tensor types and how their blocks become fp32.

Block layouts: ggml-common.h of llama.cpp. d and m are fp16; byte j of a 32-value block's nibbles
holds value j (low) and value j + 16 (high):

    Q4_0  d, 16 bytes     value = d * (nibble - 8)
    Q4_1  d, m, 16 bytes  value = d * nibble + m
    Q8_0  d, 32 int8      value = d * code
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Q4_0, Q4_1 = 2, 3
_F32, _F16, _Q8_0, _BF16 = 0, 1, 8, 30

BLOCKS: Mapping[int, tuple[int, int]] = {
    _F32: (1, 4),
    _F16: (1, 2),
    _BF16: (1, 2),
    _Q8_0: (32, 34),
    Q4_0: (32, 18),
    Q4_1: (32, 20),
}
"""Values and bytes of one block, for the types we read."""

TYPE_NAMES: Mapping[int, str] = {
    _F32: "F32",
    _F16: "F16",
    Q4_0: "Q4_0",
    Q4_1: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    _Q8_0: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    _BF16: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
"""Names of ggml's types, so that a refusal can say which one a file uses."""


def dequantize(data: npt.NDArray[np.uint8], kind: int) -> npt.NDArray[np.float32]:
    """Raw bytes of whole blocks of a type in `BLOCKS` as a flat fp32 array.

    Each value is rounded once per operation in fp32, as ggml does.
    """
    if kind == _F32:
        return data.view("<f4").astype(np.float32)
    if kind == _F16:
        return data.view("<f2").astype(np.float32)
    if kind == _BF16:
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    items, size = BLOCKS[kind]
    blocks = data.reshape(-1, size)
    scale = _halves(blocks, 0)
    values = np.empty((len(blocks), items), np.float32)
    if kind == _Q8_0:
        np.multiply(blocks[:, 2:].view(np.int8), scale, out=values)
        return values.reshape(-1)
    packed = blocks[:, 2:] if kind == Q4_0 else blocks[:, 4:]
    half = items // 2
    for nibbles, part in ((packed & 0x0F, values[:, :half]), (packed >> 4, values[:, half:])):
        if kind == Q4_0:
            np.multiply(nibbles.view(np.int8) - np.int8(8), scale, out=part)
        else:
            np.multiply(nibbles, scale, out=part)
            part += _halves(blocks, 2)
    return values.reshape(-1)


def _halves(blocks: npt.NDArray[np.uint8], at: int) -> npt.NDArray[np.float32]:
    """The fp16 number at byte `at` of each block, fp32 [blocks, 1]."""
    halves = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")
    return halves.astype(np.float32)
