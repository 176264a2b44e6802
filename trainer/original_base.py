"""The base model as its makers gave it, to measure a version on: that is where people load it.

    training      x · Wᵀ of what lorad keeps of W, in few bits
    here          x · Wᵀ of the file or folder that the model was added from, in fp32

Only the embedding is held in memory; of the other matrices one at a time is read, once for each
pass, so passes are long. What is read must be what was added: its SHA-256 is in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from npu.engine_options import EngineOptions
from npu.engines.torch_cpu import TorchCpuEngine
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.weights import FrozenWeights, MatrixSource
from trainer.calibration.reference import reference_matrix
from trainer.evaluate import Evaluation
from trainer.memory import MIB, predicted_bytes
from trainer.models.base_model import BaseModel
from trainer.models.decoder import Decoder
from trainer.models.origin import model_files, origin_sha256, read_model
from trainer.run_plan import RunPlan
from trainer.spec import RunSpec

_FLOAT = 4
_LONGEST_PASS = 2048
_COPIES = 3
"""Of a matrix that is being read: as it comes, in the order of its rows, and beside its fellows."""


def measured_on_original(
    home: Path, spec: RunSpec, plan: RunPlan, measure: Callable[[Original], Evaluation]
) -> Evaluation | str:
    """What `measure` finds on the original of the run's base model, or why it can't be found."""
    if not spec.holdout_example_ids:
        return "there is no holdout"
    try:
        original = Original.open(home, spec, plan)
    except NoOriginalError as error:
        return str(error)
    try:
        return measure(original)
    finally:
        original.close()


class NoOriginalError(Exception):
    """Nothing can be measured on the original; the message says why in one sentence."""


@dataclass(frozen=True)
class Original:
    """An open original; its decoder is closed with `close`."""

    decoder: Decoder
    evaluation_tokens: int
    """Of one pass."""

    @classmethod
    def open(cls, home: Path, spec: RunSpec, plan: RunPlan) -> Original:
        """Find what the run's base model was added from, and read its embedding.

        Raises:
            NoOriginalError: it is gone, changed or unreadable, or there isn't the memory for it.
        """
        folder = home / "models" / spec.model_name
        manifest = json.loads((folder / "manifest.json").read_bytes())
        name, source, origin = manifest["name"], manifest["source"], manifest.get("origin")
        if origin is None:
            raise NoOriginalError(
                f"{name} was added by an earlier lorad, which didn't keep where {source} lay"
            )
        path = Path(origin["path"])
        try:
            if origin_sha256(path) != origin["sha256"]:
                raise NoOriginalError(f"{source} has changed since {name} was added from it")
            model = read_model(path)
            size = sum(file.stat().st_size for file in model_files(path))
            tokens = _tokens_at_once(model, size, plan, source)
            kept = FrozenWeights.open(folder / "weights.lorad")
            return cls(Decoder(model.config, *_engine(model, kept, spec.threads)), tokens)
        except (OSError, ValueError) as error:
            gone = isinstance(error, FileNotFoundError)
            reason = "isn't where it was" if gone else "can't be read"
            raise NoOriginalError(f"{source}, from which {name} was added, {reason}") from error

    def close(self) -> None:
        """Let go of its memory."""
        self.decoder.engine.close()


def _tokens_at_once(model: BaseModel, size: int, plan: RunPlan, source: str) -> int:
    """Tokens of a pass: as many as the memory allows, up to where reading hardly counts."""
    matrices = {one.name: _FLOAT * one.shape[0] * one.shape[1] for one in model.matrices()}
    embedding = matrices.pop("embed_tokens")
    held = size + embedding + max(embedding, _COPIES * max(matrices.values()))
    evaluation = replace(plan.work, longest_example=1)  # no step is taken any more
    needed = 0
    for tokens in (_LONGEST_PASS, _LONGEST_PASS // 2, plan.amounts.evaluation_tokens):
        amounts = replace(
            plan.amounts, micro_batch_tokens=1, keep_tokens=0, evaluation_tokens=tokens
        )
        needed = held + predicted_bytes(evaluation, amounts)
        if plan.budget is None or needed <= plan.budget:
            return tokens
    assert plan.budget is not None
    raise NoOriginalError(
        f"measuring on {source} takes {-(-needed // MIB)} MB of memory, and LORAD_MEMORY_MB allows"
        f" {plan.budget // MIB}"
    )


class _Matrices:
    """What a decoder needs of the original: vectors, which are kept exactly, and embedding."""

    def __init__(self, kept: FrozenWeights, embedding: FrozenMatrix) -> None:
        self.vectors: Mapping[str, npt.NDArray[Any]] = kept.vectors
        self.matrices: Mapping[str, FrozenMatrix] = {**kept.matrices, embedding.name: embedding}


class _OriginalEngine(TorchCpuEngine):
    """Products forward with the sources' values; of the matrices it knows only the shapes."""

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        sources: Mapping[str, MatrixSource],
        options: EngineOptions,
    ) -> None:
        super().__init__(matrices, options)
        self._sources = sources

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """`a` times the original of `matrix`, forward only; see Engine.compute."""
        assert direction == "forward"
        held = matrix.name not in self._sources
        W = matrix.codes if held else self._sources[matrix.name].load()
        return a @ torch.from_numpy(W).t()


def _engine(
    model: BaseModel, kept: FrozenWeights, threads: int
) -> tuple[_Matrices, _OriginalEngine]:
    sources = {one.name: one for one in model.matrices()}
    embedding = reference_matrix("embed_tokens", sources.pop("embed_tokens").load())
    weights = _Matrices(kept, embedding)
    return weights, _OriginalEngine(weights.matrices, sources, EngineOptions(threads=threads))
