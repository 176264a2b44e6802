"""The tensors of an imported adapter: exactly those of ours, with numbers in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.export.peft import BASE_HASH
from trainer.models.layout import LINEARS
from trainer.peft_import.expected import Expected
from trainer.peft_import.refused import ImportRefusedError
from trainer.peft_keys import parsed_peft_key
from trainer.safetensors_file import SafetensorsError, SafetensorsFile


class ImportedTensors:
    """The opened and checked file."""

    def __init__(self, path: Path, expected: Expected) -> None:
        """Check the file at `path`: its base, and every tensor's name, type and shape.

        Raises:
            ImportRefusedError: naming what is expected and what was found.
        """
        try:
            self._file = SafetensorsFile(path)
        except SafetensorsError as error:
            raise ImportRefusedError(f"{error}; save the adapter again with peft") from None
        header = self._file.header
        base = header.metadata.get(BASE_HASH)
        if base is not None and base != expected.base_hash:
            raise ImportRefusedError(
                f"expected an adapter on the base model {expected.base_hash}, found one on {base};"
                " import it into an adapter on that base",
                conflict=True,
            )
        self.base_known = base is not None
        """Whether the file itself names our base."""
        self.dtype = ", ".join(sorted({tensor.dtype for tensor in header.tensors.values()}))
        """The types of its tensors."""
        _check({name: info.shape for name, info in header.tensors.items()}, expected)

    def load(self) -> dict[str, npt.NDArray[np.float32]]:
        """All tensors as fp32.

        Raises:
            ImportRefusedError: a number isn't finite, or every lora_B is zero.
        """
        arrays = {name: self._file.load(name) for name in self._file.names()}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ImportRefusedError(
                    f"expected finite numbers, found others in {name}; train the adapter again"
                )
        if not any(array.any() for name, array in arrays.items() if ".lora_B." in name):
            raise ImportRefusedError(
                "expected an adapter that was trained, found every lora_B zero; train it first"
            )
        return arrays


def _check(found: Mapping[str, tuple[int, ...]], expected: Expected) -> None:
    known = {name: key for name in found if (key := parsed_peft_key(name)) is not None}
    for name in sorted(found.keys() - known.keys()):
        raise ImportRefusedError(
            f"expected only lora_A and lora_B of the linears {', '.join(LINEARS)}, found {name};"
            " train an adapter without it"
        )
    targets = {target for _, target, _ in known.values()}
    if targets != set(expected.targets):
        raise _others("targets", expected.targets, [one for one in LINEARS if one in targets])
    layers = sorted({layer for layer, _, _ in known.values()})
    if layers != list(expected.layers):
        raise _others("layers", expected.layers, layers)
    for name, shape in expected.shapes().items():
        if name not in found:
            raise ImportRefusedError(f"expected {name}, found none; save the adapter again")
        if found[name] != shape:
            raise ImportRefusedError(
                f"expected {name} of shape {list(shape)}, found {list(found[name])}; the adapter is"
                " of another base model or rank",
                conflict=True,
            )
    for name in sorted(found.keys() - expected.shapes().keys()):
        raise ImportRefusedError(f"expected no {name}, found one; save the adapter again")


def _others(what: str, wanted: Iterable[object], found: Iterable[object]) -> ImportRefusedError:
    return ImportRefusedError(
        f"expected an adapter of the {what} {', '.join(map(str, wanted))}, found"
        f" {', '.join(map(str, found)) or 'none'}; make an adapter with the same settings and"
        " import it there",
        conflict=True,
    )
