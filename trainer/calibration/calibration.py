"""How much each frozen matrix's format costs the gradients: `Calibration`.

    g   the gradients of one adapter on a few texts, every weight in fp32
    g'  the same with one matrix's effective weights of a candidate format in the place of its own,
        in the forward product alone, in the input gradient alone, or in both

What is measured is g' against g (`changes.py`). lora_B is random: at zero, as in a fresh adapter,
lora_A has no gradient at all. The embedding lookup belongs to the forward direction.

A benchmark uses it so:

    with Calibration.prepare(model, texts, folder, settings) as calibration:
        table = calibration.measure()                                   # minutes
        for mix in propose_mixes(table.candidates(), budgets):          # npu/precision.py
            calibration.change_of_mix(mix.formats)                      # a second or two each
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from npu.engine_options import EngineOptions
from npu.format_shares import format_bytes
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.precision import CANDIDATES, Candidate, candidate_formats
from npu.quantize import quantize
from npu.weight_layout import WeightFormat
from npu.weights import FrozenWeights, MatrixSource, write_frozen_weights
from trainer.calibration.changes import Change, ReferenceGradient
from trainer.calibration.options import CalibrationSettings
from trainer.calibration.reference import ReferenceWeights
from trainer.calibration.swap_engine import SwapEngine
from trainer.calibration.texts import CalibrationTexts
from trainer.determinism import be_deterministic
from trainer.lora import LoraAdapter
from trainer.loss import answer_loss
from trainer.models.base_model import BaseModel
from trainer.models.decoder import Decoder

BOTH: tuple[Direction, ...] = ("forward", "input_gradient")
_FORWARD, _INPUT_GRADIENT = BOTH[:1], BOTH[1:]
LORA_B_DEVIATION = 0.02
"""Standard deviation of lora_B's entries."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FormatCost:
    """What one candidate format of one matrix takes and changes."""

    format: WeightFormat
    bytes: int
    forward: Change
    input_gradient: Change | None
    """None if no gradient passes through this matrix: below it there is nothing to train."""

    @property
    def change(self) -> float:
        """An estimate of the change with both directions: as if the two were independent."""
        other = 0.0 if self.input_gradient is None else self.input_gradient.change
        return float(np.hypot(self.forward.change, other))


@dataclass(frozen=True)
class MatrixCosts:
    """One matrix with all its candidates."""

    name: str
    shape: tuple[int, int]
    native: WeightFormat | None
    """The 4-bit format that the source itself has it in."""
    formats: tuple[FormatCost, ...]
    refused: Mapping[WeightFormat, str]
    """Formats that can't hold its values, and why."""


@dataclass(frozen=True)
class CostTable:
    """Every matrix in the order of the weight file."""

    matrices: tuple[MatrixCosts, ...]

    def candidates(self) -> dict[str, list[Candidate]]:
        """What the policy chooses from."""
        return {
            matrix.name: [Candidate(c.format, c.bytes, c.change) for c in matrix.formats]
            for matrix in self.matrices
        }


class Calibration:
    """The gradients of one adapter on one packed sequence of texts, under any weights.

    Deterministic for equal settings, texts, libraries and processor.
    """

    def __init__(
        self,
        model: BaseModel,
        reference: ReferenceWeights,
        texts: CalibrationTexts,
        folder: Path,
        settings: CalibrationSettings,
    ) -> None:
        """Compute the fp32 gradients; use `prepare`."""
        self.texts, self.settings, self._folder = texts, settings, folder
        self._config = model.config
        self.reference = reference
        self._sources = [
            replace(source, load=_loader(reference.matrices[source.name]))
            for source in model.matrices()
        ]
        self.engine = SwapEngine(reference.matrices, EngineOptions(threads=settings.threads))
        self._adapter = random_adapter(model, settings)
        with self.engine.recording():
            gradient = self._gradient_with(reference)
        parameters = self._adapter.named_parameters()
        sizes = [parameter.numel() for parameter in parameters.values()]
        self._expected = ReferenceGradient(list(parameters), sizes, gradient)

    @classmethod
    @contextmanager
    def prepare(
        cls,
        model: BaseModel,
        texts: CalibrationTexts,
        folder: Path,
        settings: CalibrationSettings,
        progress: Progress | None = None,
    ) -> Iterator[Calibration]:
        """Read the model's own values into a nameless temporary file in `folder`, 4 bytes each.

        Sets torch's thread count of this process, and asks it for deterministic algorithms.
        """
        torch.set_num_threads(settings.threads)
        be_deterministic()
        reference = ReferenceWeights.write(model, folder, progress)
        calibration = cls(model, reference, texts, folder, settings)
        try:
            yield calibration
        finally:
            calibration.engine.close()

    def measure(
        self,
        formats: Collection[WeightFormat] = CANDIDATES,
        progress: Progress | None = None,
    ) -> CostTable:
        """Every matrix, one at a time, in every one of `formats` that it can have.

        `progress(done, total)` counts matrices, which take about the same time each.

        Raises ValueError for a matrix that can't have any of them.
        """
        costs = []
        for done, source in enumerate(self._sources):
            if progress is not None:
                progress(done, len(self._sources))
            costs.append(self._costs(source, formats))
        if progress is not None:
            progress(len(self._sources), len(self._sources))
        return CostTable(tuple(costs))

    def change_of_matrix(
        self, name: str, format: WeightFormat, directions: Collection[Direction] = BOTH
    ) -> Change:
        """One matrix in `format`, in these directions; all others in fp32."""
        source = next(source for source in self._sources if source.name == name)
        return self.change_of({name: _in_format(source, format)}, directions)

    def change_of_mix(self, formats: Mapping[str, WeightFormat]) -> Change:
        """All of the matrices in `formats`, by name, in both directions; the others in fp32.

        They are written to a weight file, as an added model's are, and removed afterwards.
        """
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".mix-") as folder:
            path = Path(folder) / "weights.lorad"
            sources = [source for source in self._sources if source.name in formats]
            write_frozen_weights(path, {}, sources, {}, format=formats)
            weights = FrozenWeights.open(path)
            try:
                return self.change_of(weights.matrices)
            finally:
                weights.close()

    def change_of(
        self, matrices: Mapping[str, FrozenMatrix], directions: Collection[Direction] = BOTH
    ) -> Change:
        """These matrices in the place of their own values, in these directions."""
        return self._expected.change(self.gradient(matrices, directions))

    def gradient(
        self,
        matrices: Mapping[str, FrozenMatrix],
        directions: Collection[Direction] = BOTH,
        *,
        reuse: bool = True,
    ) -> npt.NDArray[np.float32]:
        """The adapter's gradients with these matrices in these directions, flat.

        Equal bits with and without `reuse`, which spares what equals the recorded pass.
        """
        weights, looked_up = self.reference, "embed_tokens" in matrices and "forward" in directions
        if looked_up:
            weights = weights.with_matrices({"embed_tokens": matrices["embed_tokens"]})
        with self.engine.swapped(matrices, directions, reuse=reuse and not looked_up):
            return self._gradient_with(weights)

    def _costs(self, source: MatrixSource, formats: Collection[WeightFormat]) -> MatrixCosts:
        costs, refused = [], {}
        for format in candidate_formats(source.shape[1]):
            if format not in formats:
                continue
            try:
                matrix = _in_format(source, format)
            except ValueError as error:
                refused[format] = str(error)
                continue
            swap = {source.name: matrix}
            used_backwards = ("input_gradient", source.name) in self.engine.recorded
            costs.append(
                FormatCost(
                    format,
                    format_bytes(format, source.shape),
                    self.change_of(swap, _FORWARD),
                    self.change_of(swap, _INPUT_GRADIENT) if used_backwards else None,
                )
            )
        return MatrixCosts(source.name, source.shape, source.native, tuple(costs), refused)

    def _gradient_with(self, weights: ReferenceWeights) -> npt.NDArray[np.float32]:
        self._adapter.gradient.zero_()
        answer_loss(
            Decoder(self._config, weights, self.engine),
            self._adapter,
            self.texts.examples,
            self.texts.shared,
            recompute=False,
            weight=1.0 / self.texts.label_tokens,
            logit_rows=self.texts.label_tokens,
        )
        gradients = self._adapter.named_gradients().values()
        return np.concatenate([gradient.numpy().reshape(-1) for gradient in gradients])


def random_adapter(model: BaseModel, settings: CalibrationSettings) -> LoraAdapter:
    """An adapter on every linear, lora_A as in a fresh one, lora_B normal around zero."""
    adapter = LoraAdapter(
        model.config, rank=settings.rank, alpha=settings.alpha, seed=settings.seed
    )
    generator = torch.Generator().manual_seed(settings.seed + 1)
    adapter.randomise(generator, LORA_B_DEVIATION)
    return adapter


def _in_format(source: MatrixSource, format: WeightFormat) -> FrozenMatrix:
    """As `write_frozen_weights` would write it. Raises ValueError if the format can't hold it."""
    if source.native == format and source.load_native is not None:
        encoded = source.load_native()
    else:
        encoded = quantize(source.load(), format)
    return FrozenMatrix(source.name, format, encoded.codes, encoded.scale, encoded.offset)


def _loader(matrix: FrozenMatrix) -> Callable[[], npt.NDArray[np.float32]]:
    return lambda: matrix.codes
