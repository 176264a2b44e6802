"""A base model's own weights in fp32, mapped from a temporary file: what gradients are compared to.

Of a GGUF source these are its exact dequantised values, of a Hugging Face folder its tensors.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npu.frozen_matrix import FrozenMatrix
from trainer.models.base_model import BaseModel

_FLOAT = np.dtype("<f4")


@dataclass(frozen=True)
class ReferenceWeights:
    """What a decoder needs of a weight file, with fp32 values where the file has codes.

    The arrays are views of a mapped file that has no name any more: whatever ends the process,
    nothing of it stays on the disk, and the memory they take can be had back at any time.
    """

    matrices: Mapping[str, FrozenMatrix]
    vectors: Mapping[str, npt.NDArray[np.float32]]

    @classmethod
    def write(
        cls, model: BaseModel, folder: Path, progress: Callable[[int, int], None] | None = None
    ) -> ReferenceWeights:
        """Read all of `model`, holding one matrix in memory at a time; the file is in `folder`.

        `progress(done, total)` counts matrices. Raises OSError if the file can't be written, and
        what a tensor's loading raises.
        """
        sources = model.matrices()
        with tempfile.TemporaryFile(dir=folder) as file:
            for done, source in enumerate(sources):
                if progress is not None:
                    progress(done, len(sources))
                file.write(
                    np.ascontiguousarray(source.load(), _FLOAT).reshape(-1).view(np.uint8).data
                )
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0)
        matrices, offset = {}, 0
        for source in sources:
            rows, columns = source.shape
            values = np.frombuffer(mapped, _FLOAT, rows * columns, offset).reshape(source.shape)
            matrices[source.name] = reference_matrix(source.name, values)
            offset += values.nbytes
        return cls(matrices, model.vectors())

    def with_matrices(self, others: Mapping[str, FrozenMatrix]) -> ReferenceWeights:
        """The same with some matrices replaced."""
        return replace(self, matrices={**self.matrices, **others})


def reference_matrix(name: str, values: npt.NDArray[np.float32]) -> FrozenMatrix:
    """`values` fp32 [N, K] as a matrix: in the format whose codes are the weights, unrounded."""
    return FrozenMatrix(name, "fp16", values, None)
