"""One resident copy of a weight for both directions: bytes per parameter, beside static pairs.

    python -m bench.one_copy [--json] [--quick | --every-shape] [--jobs 2]

Forms of ours, built by `npu` as training builds them (form `table`): fp16, int8, int4, int4_min.
Beside them the ordinary static pairs of `one_copy_static.py`, in one shared context as well.

What is measured: the size of the context binary plus the scratch that it declares (`max_size` of
its EPContext node, once per context), as the compiler for the phone makes it on this machine. It is
not the memory of a running phone. `forward`: graphs for y = x W^T alone; `both`: those for
dx = dy W too, for 32 rows each; `all_buckets`: both directions for every number of rows that
training has graphs for. A figure of a form is all bytes of the cut models' contexts over all
their parameters: Llama-3.2-1B, the largest cut, weighs most. `worst_context` is the worst of single
contexts, both directions. With `--every-shape` (three times the contexts) there is one for each
shape alone as well: what a graph costs whatever it holds, some 100 KB of code, is spread over one
layer there. The goals are for `both`; whether the worst context alone would meet them is told
beside.

A small context that computes nonsense doesn't count: results are compared with float64 on the
effective weights, and an error above 2e-3 counts as a failure. `gemm_pair` shows why: both
directions as Gemm on one constant take one copy, and one of them is wrong without a word.

Exit code 1 if a goal is missed. Needs `make setup-test`, and Qualcomm's emulator (Linux on x86-64).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from bench.one_copy_case import FORMS, OUR_FORMS, Case, Form, Scope
from bench.one_copy_shapes import MODELS, QUICK, Shape

GOALS: Mapping[Form, float] = {"int4": 0.70, "int4_min": 0.82, "int8": 1.15, "fp16": 2.15}
"""Most bytes per parameter for both directions."""

LARGEST_ERROR = 2e-3
"""Relative Frobenius error of a result; fp16 costs 3e-4, 16-bit activations 1e-4."""

_LONGEST_SECONDS = 600.0

MEASURED = (
    "bytes of the context binary plus the scratch it declares (max_size of the EPContext node) per "
    "parameter, as compiled on this machine; not the memory of a running phone"
)


def planned_cases(*, quick: bool, every_shape: bool = False) -> list[Case]:
    """All cases, the largest first."""
    cases = []
    for model in MODELS:
        cut, shapes = model.cut(), model.shapes()
        if quick:
            shapes = [shape for shape in shapes if shape.name in QUICK[model.name]]
            cut = shapes
        for form in FORMS:
            scopes: list[Scope] = ["forward", "both"]
            if form in OUR_FORMS:
                scopes.append("all_buckets")
            cases += [Case(form, scope, model.name, None, tuple(cut)) for scope in scopes]
            if every_shape:
                cases += [Case(form, "both", model.name, s.name, (s,)) for s in shapes]
    cases.sort(key=lambda case: -case.parameters)
    return [*cases, Case("gemm_pair", "both", "square", "square", (Shape("square", 1280, 1280),))]


def run_case(case: Case) -> dict[str, Any]:
    """Measure one case in a process of its own: a failed compilation poisons its process."""
    began = time.monotonic()
    found: dict[str, Any]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.one_copy_case", json.dumps(asdict(case))],
            capture_output=True,
            check=False,
            text=True,
            timeout=_LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        found = {"failure": f"not done after {_LONGEST_SECONDS:.0f} s"}
    else:
        lines = done.stdout.splitlines()
        if lines and lines[-1].startswith("{"):
            found = json.loads(lines[-1])
        else:
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            found = {"failure": f"exit code {done.returncode}: {last}"}
    worst = max(found.get("errors", {}).values(), default=0.0)
    if case.form != "gemm_pair" and not worst <= LARGEST_ERROR:
        found["failure"] = f"expected errors up to {LARGEST_ERROR}, found {worst:.1e}"
    found["seconds"] = round(time.monotonic() - began, 1)
    return {
        "form": case.form,
        "scope": case.scope,
        "model": case.model,
        "shape": case.shape,
        "parameters": case.parameters,
        **found,
    }


def bytes_per_parameter(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Binary and scratch of these contexts over their parameters; None if one of them failed."""
    if not rows or any("failure" in row for row in rows):
        return None
    total: int = sum(row["bytes"] + row["spill_bytes"] for row in rows)
    parameters: int = sum(row["parameters"] for row in rows)
    return round(total / parameters, 4)


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each form's figures, and every goal with whether it is met."""
    summary: dict[str, Any] = {}
    for form in FORMS:
        of_form = [row for row in rows if row["form"] == form]
        cut = [row for row in of_form if row["shape"] is None]
        scopes = list(dict.fromkeys(row["scope"] for row in cut))
        summary[form] = {
            scope: bytes_per_parameter([row for row in cut if row["scope"] == scope])
            for scope in scopes
        }
        single = [row for row in of_form if row["shape"] is not None] or [
            row for row in cut if row["scope"] == "both"
        ]
        figures = [bytes_per_parameter([row]) for row in single]
        known = [figure for figure in figures if figure is not None]
        summary[form]["worst_context"] = max(known) if len(known) == len(figures) else None
        errors = [row["errors"] for row in of_form if "errors" in row]
        for side in ("y", "dx"):
            found = [error[side] for error in errors if side in error]
            summary[form][f"error_{side}"] = max(found, default=None)
    summary["goals"] = {
        form: {
            "most": goal,
            "met": _within(summary[form]["both"], goal),
            "met_by_worst_context": _within(summary[form]["worst_context"], goal),
        }
        for form, goal in GOALS.items()
    }
    return summary


def _within(figure: float | None, goal: float) -> bool:
    return figure is not None and figure <= goal


def as_table(result: Mapping[str, Any]) -> str:
    """The figures for people."""
    columns = ("forward", "both", "all_buckets", "worst_context", "error_y", "error_dx")
    lines = [f"Measured: {result['measured']}.", f"Device: {result['device']}.", ""]
    lines.append("B/parameter".ljust(14) + "".join(name.rjust(13) for name in columns) + "   goal")
    for form in FORMS:
        line = form.ljust(14)
        for name in columns:
            value = result[form].get(name)
            shown = "-" if value is None else f"{value:.1e}" if "error" in name else f"{value:.3f}"
            line += shown.rjust(13)
        if form in result["goals"]:
            goal = result["goals"][form]
            line += f"   <= {goal['most']:.2f} {'met' if goal['met'] else 'MISSED'}"
        lines.append(line)
    pair = result["gemm_pair"]
    lines += ["", f"gemm_pair: {pair['warning']} ({pair['both']} B/parameter)"]
    failures = [row for row in result["cases"] if "failure" in row]
    lines += [f"{r['form']} {r['model']} {r['shape'] or 'cut'}: {r['failure']}" for r in failures]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.one_copy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one shape per model")
    size.add_argument("--every-shape", action="store_true", help="each shape alone as well")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at once")
    options = parser.parse_args()
    began = time.monotonic()
    cases = planned_cases(quick=options.quick, every_shape=options.every_shape)
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for done, row in enumerate(pool.map(run_case, cases), 1):
            rows.append(row)
            print(f"\r{done} of {len(cases)} contexts", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    pair = rows.pop()
    known = next((row for row in rows if "device" in row), {})
    result = {
        "measured": MEASURED,
        "device": known.get("device"),
        "versions": known.get("versions"),
        "models": {
            model.name: QUICK[model.name] if options.quick else model.describe() for model in MODELS
        },
        **summarise(rows),
        "gemm_pair": {
            "both": bytes_per_parameter([pair]),
            "errors": pair.get("errors"),
            "warning": pair.get("failure") or "one copy, but one direction is wrong without a word",
        },
        "cases": [
            {key: value for key, value in row.items() if key not in ("device", "versions")}
            for row in rows
        ],
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result) if options.json else as_table(result))
    return 0 if all(goal["met"] for goal in result["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
