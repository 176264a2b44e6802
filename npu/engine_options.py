"""How an engine is to be opened: what a run may choose, and what its numbers may depend on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npu.htp import Soc
from npu.pieces import BUCKETS

FormName = Literal["inputs", "table"]
"""How a graph gets its weight; see `forms/`."""

RequestedForm = Literal["auto", "inputs", "table"]

Activations = Literal["fp16", "int16"]
"""What x of a forward product is rounded to; see `integer_products.py`."""


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is opened with; an engine ignores what it has no use for."""

    threads: int = 1
    form: RequestedForm = "auto"
    """`auto`: `table` on the NPU and its emulator where it can be made, `inputs` elsewhere."""
    buckets: tuple[int, ...] = BUCKETS
    """Numbers of rows that graphs are made for, ascending."""
    soc: Soc | None = None
    """Compile for this one; None: the phone's own, or what the emulator imitates by default."""
    cache_dir: Path | None = None
    """Where compiled graphs are kept; None: nowhere."""
    overlap: bool = True
    """Whether an engine with a thread of its own uses it; the results are the same bits."""
    activations: Activations = "fp16"
    """`int16`: forward products of int8 weights on a graph engine in 16-bit integers; of form
    `inputs` only. Everything else, and always dy, is fp16 there."""

    def __post_init__(self) -> None:
        """Refuse what no engine can be opened with. Raises ValueError."""
        if self.threads < 1:
            raise ValueError(
                f"expected at least 1 thread, found {self.threads}: give a positive number"
            )
        if self.activations == "int16" and self.form == "table":
            raise ValueError(
                "expected form inputs or auto with int16 activations, found table: its graphs are "
                "made for fp16 activations"
            )
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(
                f"expected ascending numbers of rows, found {self.buckets}: "
                f"choose from {', '.join(map(str, BUCKETS))}"
            )
