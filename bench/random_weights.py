"""A random model of any shape: for what a step costs, its weights' values don't matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from npu.weights import write_frozen_weights
from trainer.models.base_model import BaseModel
from trainer.models.config import DecoderConfig
from trainer.models.layout import tensor_shapes
from trainer.models.tiny import byte_tokenizer
from trainer.weight_plan import FormatChoice, plan_formats


def write_random_weights(path: Path, config: DecoderConfig, format: FormatChoice) -> None:
    """Write a frozen-weight file; matrices keep a unit input near unit size, norms do nothing."""
    shapes = tensor_shapes(config)

    def load(name: str) -> npt.NDArray[np.float32]:
        shape = shapes[name]
        if name.endswith("norm"):
            return np.ones(shape, np.float32)
        random = np.random.default_rng([*name.encode()])
        return random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

    model = BaseModel(config, "huggingface", byte_tokenizer(), "", {}, load)
    matrices = model.matrices()
    metadata = {"config": config.to_json()}
    formats = plan_formats(format, matrices)
    write_frozen_weights(path, metadata, matrices, model.vectors(), format=formats)
