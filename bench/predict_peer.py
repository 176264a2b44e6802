"""Others that answer the questions of `bench.predict`: `python -m bench.predict_peer NAME TASK`.

One line of standard input is one question, `labels` or `text`; one line of JSON answers it. While
nothing is asked the process waits in a read and takes no core from the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.predict_task import PredictTask


class Peer(Protocol):
    """Answers both questions, as well as its library can."""

    def labels(self) -> list[float]:
        """The summed log-likelihood of each label after the prompt."""
        ...

    def text(self) -> list[int]:
        """The tokens of the greedy text, without the end token."""
        ...


class Transformers:
    """`transformers` with its cache: the prompt once, then all labels as one padded batch."""

    def __init__(self, task: PredictTask) -> None:
        """Load the model."""
        import torch
        import transformers

        torch.set_num_threads(task.threads)
        self._torch, self._task = torch, task
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            task.folder, dtype=torch.float32, attn_implementation="sdpa"
        )
        self._model = model.eval()

    def labels(self) -> list[float]:
        torch, task = self._torch, self._task
        longest = max(map(len, task.answers)) - 1
        rows = [[*answer[:-1], *[0] * longest][:longest] for answer in task.answers]
        with torch.inference_mode():
            prompt = self._model(torch.tensor([task.label_prompt]), logits_to_keep=1)
            first = torch.log_softmax(prompt.logits[0, -1].double(), -1)
            cache = prompt.past_key_values
            cache.batch_repeat_interleave(len(rows))
            behind = self._model(torch.tensor(rows), past_key_values=cache).logits
            later = torch.log_softmax(behind.double(), -1)
        return [
            float(first[answer[0]])
            + sum(float(later[row, place, token]) for place, token in enumerate(answer[1:]))
            for row, answer in enumerate(task.answers)
        ]

    def text(self) -> list[int]:
        torch, task = self._torch, self._task
        prompt = torch.tensor([task.text_prompt])
        with torch.inference_mode():
            found = self._model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=task.text_tokens,
                eos_token_id=list(task.end_tokens),
                pad_token_id=0,
            )
        tokens: list[int] = found[0, prompt.shape[1] :].tolist()
        return [token for token in tokens if token not in task.end_tokens]


class LlamaCpp:
    """llama.cpp's server, in this process; it scores no given labels."""

    def __init__(self, task: PredictTask) -> None:
        """Load the model's own file."""
        import xllamacpp

        assert task.gguf is not None
        parameters = xllamacpp.CommonParams()
        parameters.model.path = task.gguf
        parameters.n_ctx = 1024
        parameters.cpuparams.n_threads = task.threads
        parameters.cpuparams_batch.n_threads = task.threads
        parameters.n_parallel = 1
        self._task, self._server = task, xllamacpp.Server(parameters)

    def labels(self) -> list[float]:
        return []

    def text(self) -> list[int]:
        asked = {
            "prompt": list(self._task.text_prompt),
            "n_predict": self._task.text_tokens,
            "temperature": 0.0,
            "cache_prompt": False,
            "n_probs": 1,
        }
        answer = self._server.handle_completions(asked)
        answer = answer if isinstance(answer, dict) else json.loads(answer)
        found = answer["choices"][0]["logprobs"]["content"]
        tokens = [one["id"] for one in found]
        return [token for token in tokens if token not in self._task.end_tokens]


PEERS: Mapping[str, Callable[[PredictTask], Peer]] = {
    "transformers": Transformers,
    "llama.cpp": LlamaCpp,
}


def main(arguments: Sequence[str]) -> None:
    """Answer until the end of standard input."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that print shall not write into it
    name, path = arguments
    peer: Peer = PEERS[name](PredictTask.read(Path(path)))
    out.write("{}\n")
    for line in sys.stdin:
        began = time.perf_counter()
        found = peer.labels() if line.strip() == "labels" else peer.text()
        out.write(json.dumps({"seconds": time.perf_counter() - began, "found": found}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
