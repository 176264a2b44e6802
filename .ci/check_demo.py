"""Reads `lorad demo --json` on stdin; exits 1 unless the model really learned.

Really: the holdout's accuracy rose by at least ten points and by more than twice the standard
error of the difference of two independent proportions, its loss fell, and an engine computed the
products.
"""

import json
import math
import sys
from typing import Any

LEAST_HOLDOUT = 60
LEAST_GAIN = 0.10


def complaints(result: dict[str, Any]) -> list[str]:
    """What is wrong with a demo's result; empty if nothing is."""
    before, after, holdout = result["accuracy_before"], result["accuracy_after"], result["holdout"]
    found = []
    if holdout < LEAST_HOLDOUT:
        found.append(f"expected at least {LEAST_HOLDOUT} holdout rows, found {holdout}")
    error = math.sqrt((before * (1 - before) + after * (1 - after)) / max(holdout, 1))
    needed = max(LEAST_GAIN, 2 * error)
    if not after - before >= needed:
        found.append(
            f"expected the accuracy to rise by {needed:.3f} or more, "
            f"found {before:.3f} -> {after:.3f}"
        )
    if not result["loss_after"] < result["loss_before"]:
        found.append(
            f"expected the loss to fall, found {result['loss_before']} -> {result['loss_after']}"
        )
    if not result["steps"] > 0 or not result["products"]:
        found.append(
            f"expected steps and products, found {result['steps']} and {result['products']}"
        )
    return found


def main() -> int:
    """Judge the last line of stdin."""
    lines = sys.stdin.read().splitlines()
    result = json.loads(lines[-1])
    found = complaints(result)
    for complaint in found:
        print(f"demo: {complaint}", file=sys.stderr)
    if not found:
        print(
            f"demo: accuracy {result['accuracy_before']:.3f} -> {result['accuracy_after']:.3f} "
            f"on {result['holdout']} holdout rows, {result['steps']} steps, "
            f"{result['seconds']:.0f} s, engine {result['engine']}"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
