"""The precisions on the frontier: uniform ones, the source's own, and the policy's mixes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu.precision import Candidate, propose_mixes
from npu.weight_layout import WeightFormat
from npu.weights import MatrixSource
from trainer.weight_plan import plan_formats

REFERENCE = "fp32"

Candidates = Mapping[str, Sequence[Candidate]]


@dataclass(frozen=True)
class Precision:
    """A format for every matrix, by name; None stands for the source's own values in fp32."""

    name: str
    how: str
    formats: Mapping[str, WeightFormat] | None


def precisions(
    sources: Sequence[MatrixSource], candidates: Candidates, shares: Sequence[float]
) -> list[Precision]:
    """The reference first, then all others.

    `shares` are budgets: 0 is the bytes of the smallest mix there is, 1 those of int8 everywhere.
    A budget gives two mixes, one of all formats and one of int4 and int8 alone.
    """
    found = [Precision(REFERENCE, "the source's own values, the reference", None)]
    uniform: tuple[WeightFormat, ...] = ("fp16", "int8", "int4")
    for format in uniform:
        formats = {s.name: format for s in sources}
        found.append(Precision(format, f"{format} everywhere", formats))
    native = plan_formats("native", sources)
    found.append(Precision("native", "what the source has in 4 bits is kept, else int8", native))
    for share in shares:
        for prefix, allowed in (("mix", None), ("int4_int8", ("int4", "int8"))):
            found.append(_mix(prefix, candidates, allowed, share))
    return found


def _mix(
    prefix: str, candidates: Candidates, allowed: tuple[str, ...] | None, share: float
) -> Precision:
    usable = {
        name: [c for c in found if allowed is None or c.format in allowed]
        for name, found in candidates.items()
    }
    least = sum(min(c.bytes for c in found) for found in usable.values())
    most = sum(c.bytes for found in usable.values() for c in found if c.format == "int8")
    budget = math.ceil(least + share * (most - least))
    (mix,) = propose_mixes(usable, [budget])
    what = "of all formats" if allowed is None else f"of {' and '.join(allowed)}"
    return Precision(
        f"{prefix}_{share:g}", f"the policy's mix {what} within {budget} bytes", mix.formats
    )
