"""One contestant in a process of its own: `python -m bench.peers_child NAME TASK.json`.

Started by `bench.peers_race`, with the interpreter of the contestant's environment.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

from bench.peers_channel import Channel
from bench.peers_contestants import CONTESTANTS
from bench.peers_task import Task


def main() -> None:
    name, path = sys.argv[1:]
    channel = Channel()
    task = Task.read(Path(path))
    torch.set_num_threads(task.threads)
    torch.manual_seed(0)
    contestant = CONTESTANTS[name]
    importlib.import_module(contestant.module).run(task, channel, **contestant.options)


if __name__ == "__main__":
    main()
