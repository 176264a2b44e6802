"""How long an answer takes, beside `transformers` and llama.cpp: `python -m bench.predict`.

All answer the same two questions on the same model, in turn, each in a process of its own that
waits while the others compute:

    labels   which of 15 labels a short input has: seconds
    text     64 greedy tokens after a short question: tokens a second, the prompt included

Ours is the process the daemon starts, asked through its pipes, once on the bare base and once with
an adapter (rank 8, all linears) un-merged. `transformers` computes in fp32 with the effective
weights of our file and its own cache of keys and values; llama.cpp reads its own file of the model
as it is, and scores no given labels. Only ratios within one run mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peers_base import ALPHA, RANK, prepare_base
from bench.peers_bases import SMOLLM2
from bench.predict_task import INPUT, LABELS, QUESTION, PredictTask
from npu.weights import FrozenWeights
from service.child_process import ALLOCATOR
from trainer.add_model import find_source
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.models.tiny import write_tiny_model
from trainer.publishing import publish_version
from trainer.tokens import ChatTokenizer
from trainer.weight_plan import FormatChoice

_VERSION = "adapters/1/versions/run-00000001"
_FORMAT: FormatChoice = "native"


class Ours:
    """The process that answers, as the daemon starts it."""

    def __init__(self, home: Path, log: Path, threads: int, tokens: int) -> None:
        arguments = ["trainer.predictor", str(home), "--memory-mb", "1024"]
        self._process = _started(arguments, log, ALLOCATOR)
        weights = FrozenWeights.open(home / "models" / _FORMAT / "weights.lorad")
        self._head = {
            "model": _FORMAT,
            "base_hash": weights.content_hash,
            "engine": {"engine": "torch_cpu", "threads": threads},
        }
        self._tokens = tokens
        _line(self._process)

    def ask(self, what: str, version: str | None) -> dict[str, Any]:
        """The seconds from the question's line to the answer's, and the answer."""
        asked = {
            "labels": {"inputs": [INPUT], "labels": list(LABELS), "max_tokens": 1024},
            "text": {
                "messages": [{"role": "user", "content": QUESTION}],
                "max_tokens": self._tokens,
            },
        }[what]
        line = json.dumps({"id": 1, "op": what, "version": version, **self._head, **asked})
        began = time.perf_counter()
        answer = _asked(self._process, line)
        seconds = time.perf_counter() - began
        if answer["event"] != "answer":
            raise RuntimeError(f"expected an answer, found {answer}")
        return {"seconds": seconds, **answer}

    def close(self) -> None:
        _closed(self._process)


class Other:
    """A process of `bench.predict_peer`."""

    def __init__(self, name: str, task: Path, log: Path) -> None:
        self._process = _started(["bench.predict_peer", name, str(task)], log)
        _line(self._process)

    def ask(self, what: str) -> dict[str, Any]:
        return _asked(self._process, what)

    def close(self) -> None:
        _closed(self._process)


def _started(
    arguments: Sequence[str], log: Path, surroundings: Mapping[str, str] = {}
) -> subprocess.Popen[str]:
    with log.open("a") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**surroundings, **os.environ},
        )


def _asked(process: subprocess.Popen[str], line: str) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    found = _line(process)
    while found.get("event") == "answering":
        found = _line(process)
    return found


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"expected an answer of {process.args!r}, found its end")
    found: dict[str, Any] = json.loads(line)
    return found


def _closed(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)


def prepare(folder: Path, quick: bool, threads: int, tokens: int) -> PredictTask:
    """The model in every form, an adapter on it, and the questions as tokens."""
    source = SMOLLM2
    if quick:
        source = str(folder / "tiny")
        write_tiny_model(Path(source))
    base = prepare_base(folder, source, (_FORMAT,))
    tokenizer = ChatTokenizer.load(folder / "models" / _FORMAT)
    _publish(folder, base.config)
    return PredictTask(
        folder=base.folder,
        gguf=_gguf(folder, base.folder, quick),
        threads=threads,
        label_prompt=tokenizer.prompt_ids([{"role": "user", "content": INPUT}]),
        answers=[tokenizer.answer_ids(label) for label in LABELS],
        text_prompt=tokenizer.prompt_ids([{"role": "user", "content": QUESTION}]),
        text_tokens=tokens,
        end_tokens=sorted(tokenizer.end_token_ids),
    )


def _publish(home: Path, config: DecoderConfig) -> None:
    import torch

    weights = FrozenWeights.open(home / "models" / _FORMAT / "weights.lorad")
    adapter = LoraAdapter(config, rank=RANK, alpha=ALPHA)
    adapter.randomise(torch.Generator().manual_seed(1), 0.01)
    manifest = {"base_model": _FORMAT, "base_hash": weights.content_hash}
    publish_version(home, Path(_VERSION), adapter, manifest)


def _gguf(folder: Path, for_peers: str, quick: bool) -> str | None:
    """llama.cpp's file of the model; None where llama.cpp isn't installed."""
    if find_spec("xllamacpp") is None:
        return None
    if not quick:
        return str(find_source(SMOLLM2).path)
    import transformers

    from tests.trainer.family_gguf import write_gguf

    model = transformers.AutoModelForCausalLM.from_pretrained(for_peers)
    return str(write_gguf(folder / "tiny.gguf", model))


def race(folder: Path, task: PredictTask, rounds: int) -> dict[str, Any]:
    """All in turn, `rounds` times after a first time that doesn't count."""
    path = folder / "task.json"
    task.write(path)
    names = ["transformers"] if task.gguf is None else ["transformers", "llama.cpp"]
    log = folder / "bench.log"
    ours = Ours(folder, log, task.threads, task.text_tokens)
    others = {name: Other(name, path, log) for name in names}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {"labels": {}, "text": {}}
    try:
        for number in range(rounds + 1):
            for what, by_name in found.items():
                answers = {
                    "ours": ours.ask(what, None),
                    "ours, adapted": ours.ask(what, _VERSION),
                    **{
                        name: other.ask(what)
                        for name, other in others.items()
                        if (what, name) != ("labels", "llama.cpp")
                    },
                }
                for name, answer in answers.items():
                    if number:
                        by_name.setdefault(name, []).append(answer)
    finally:
        ours.close()
        for other in others.values():
            other.close()
    return report(task, found)


def report(
    task: PredictTask, found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
) -> dict[str, Any]:
    """Medians, each round's figures, and each one's ratio to ours on the bare base."""
    labels = {
        name: [answer["seconds"] for answer in answers] for name, answers in found["labels"].items()
    }
    speeds = {
        name: [_tokens(answer) / answer["seconds"] for answer in answers]
        for name, answers in found["text"].items()
    }
    scored = found["labels"]["transformers"][0]["found"]
    best = LABELS[max(range(len(LABELS)), key=scored.__getitem__)]
    return {
        "labels": {
            "count": len(LABELS),
            "seconds": _table(labels),
            "same_label": best == found["labels"]["ours"][0]["predictions"][0]["label"],
        },
        "text": {"tokens": task.text_tokens, "tokens_per_second": _table(speeds)},
        "threads": task.threads,
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count()},
    }


def _tokens(answer: Mapping[str, Any]) -> int:
    """How many were made, the end token not counted."""
    if "usage" not in answer:
        found: Sequence[int] = answer["found"]
        return len(found)
    made: int = answer["usage"]["completion_tokens"]
    return made - int(answer["finish_reason"] == "stop")


def _table(figures: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    ours = statistics.median(figures["ours"])
    return {
        name: {
            "median": round(statistics.median(values), 4),
            "times_ours": round(statistics.median(values) / ours, 3),
            "rounds": [round(value, 4) for value in values],
        }
        for name, values in figures.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.predict", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--tokens", type=int, default=64, help="of the text")
    parser.add_argument("--quick", action="store_true", help="a tiny model: only that it works")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        task = prepare(Path(folder), given.quick, given.threads, given.tokens)
        found = race(Path(folder), task, given.rounds)
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for what, unit in (("labels", "seconds"), ("text", "tokens_per_second")):
        for name, figures in found[what][unit].items():
            times = figures["times_ours"]
            print(f"{what:8}{name:16}{figures['median']:10.3f} {unit}  {times:.2f} times ours")


if __name__ == "__main__":
    main()
