"""Cut a phone-sized label set out of HWU64: `python -m bench.cut_hwu64 KFOLD.tsv OUT.jsonl`.

The label is the scenario; eight scenarios are kept. Training rows are sampled from the file's own
split `train`, held-out rows from its split `test`; a test sentence that also stands in the training
sample is not held out. The result is what `lorad demo --data` reads.

Source of the data: xliuhw/NLU-Evaluation-Data (CC BY 4.0), a fold as TSV with the columns split,
answerid, scenario, intent and text.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path

from service.demo.rows import Row, Split, same_text

SCENARIOS = ("alarm", "calendar", "email", "iot", "lists", "play", "transport", "weather")
TRAIN_ROWS, HOLDOUT_ROWS = 300, 100
COLUMNS = ["split", "answerid", "scenario", "intent", "text"]


def cut(table: str, seed: int) -> list[Row]:
    """Sample the rows of both sides; the same table and seed give the same rows.

    Raises:
        ValueError: another header than expected, or too few rows.
    """
    header, *lines = table.splitlines()
    if header.split("\t") != COLUMNS:
        raise ValueError(f"expected the columns {', '.join(COLUMNS)}, found {header!r}")
    records = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines]
    kept = [record for record in records if record["scenario"] in SCENARIOS]
    dice = random.Random(seed)  # noqa: S311 - sampling, not secrets
    train = _sample(dice, [r for r in kept if r["split"] == "train"], TRAIN_ROWS, "train")
    known = {same_text(row.input) for row in train}
    unseen = [r for r in kept if r["split"] == "test" and same_text(r["text"]) not in known]
    return train + _sample(dice, unseen, HOLDOUT_ROWS, "holdout")


def _sample(
    dice: random.Random, records: list[dict[str, str]], count: int, split: Split
) -> list[Row]:
    if len(records) < count:
        raise ValueError(f"expected at least {count} rows to sample from, found {len(records)}")
    return [Row(r["text"], r["scenario"], split) for r in dice.sample(records, count)]


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = cut(arguments.table.read_text(encoding="utf-8"), arguments.seed)
    lines = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
