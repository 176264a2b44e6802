"""The process that answers by day: `python -m trainer.predictor HOME`, started by the daemon.

It takes `worker.lock` for as long as it lives, as the training worker does: one process at a time
holds torch. On standard input comes one question a line (`trainer/predict/question.py`), or
`{"cancel": id}`; they are answered in order by JSON lines on the standard output it was given:

    {"event": "ready"}                                     once
    {"event": "token", "id": 8, "text": "…"}               a piece of a text, if it is streamed
    {"event": "answering", "id": 8}                        now and then, while an answer takes long
    {"event": "answer", "id": 8, …}                        the end of a question: answered,
    {"event": "refused", "id": 8, "status": 422, "error": "…", "field": "inputs.3"}     refused,
    {"event": "cancelled", "id": 8}                        or taken back
    {"event": "failed", "error": "…"}                      before it ends with another code than 0

The base model of the last question stays loaded, with the adapters last asked. At the end of its
standard input it answers what was asked and ends; on SIGTERM, or when nobody reads its answers, it
ends at once. No text is in its log.

Exit codes: 0 ended in order, 1 failed, 3 another process holds the lock.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from npu.doctor import Interrupted
from npu.engine_guard import AnotherLibraryPath, EngineGuard
from npu.lock_holder import lock_holder
from trainer.line_buffer import LineBuffer
from trainer.predict.answering import Answering, refuse_all
from trainer.predict.inbox import Inbox
from trainer.predict.question import Head
from trainer.predict.refused import Refused
from trainer.protocol import Protocol
from trainer.scratch import scratch
from trainer.worker import FAILED, FINISHED, LOCKED, leave, let_idle_threads_sleep, take_lock

if TYPE_CHECKING:
    from npu.engine import Engine
    from trainer.predict.base import OpenBase

_NO_RUN = 0
"""In the place of a run's id, in the mark of an engine in use."""
_MIB = 1 << 20
_ENDS = "the process that answers is asked to end"

_log = logging.getLogger("trainer.predictor")


class Predictor:
    """The process's one base model, and what has been asked of it."""

    def __init__(self, home: Path, budget: int, protocol: Protocol) -> None:
        """Listen for SIGTERM and on standard input; nothing is loaded."""
        self._home, self._budget, self._protocol = home, budget, protocol
        self._inbox = Inbox()
        self._terminated = False
        self._asked: tuple[object, ...] | None = None
        self._base: OpenBase | None = None
        self._engine: Engine | None = None
        self._guard: EngineGuard | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(target=self._watch_standard_input, daemon=True).start()

    def serve(self) -> None:
        """Answer questions until there are no more."""
        answering = Answering(
            self._inbox, self._protocol.emit, self._base_for, self._reason_to_stop
        )
        self._protocol.emit("ready", {})
        while not self._protocol.broken and (raw := self._inbox.take(wait=True)) is not None:
            answering.answer(raw)
            if self._guard is not None and self._base is not None:
                self._guard.first_product_done()
        refuse_all(self._inbox, self._protocol.emit, _ENDS)

    def close(self) -> None:
        """Let go of the base model, in order."""
        if self._engine is not None:
            self._engine.close()
        if self._guard is not None:
            self._guard.close()
        self._asked = self._base = self._engine = self._guard = None

    def _base_for(self, head: Head) -> OpenBase:
        """The base model that the question is for, on the engine that it names."""
        asked = (head.model, head.base_hash, head.engine, head.threads, head.form, head.soc)
        if self._base is None or self._asked != asked:
            self.close()
            self._open(head)
            self._asked = asked
        assert self._base is not None
        return self._base

    def _open(self, head: Head) -> None:
        guard = EngineGuard(
            self._home / "engine", _NO_RUN, stop=lambda: self._reason_to_stop() is not None
        )
        try:
            # Before torch is loaded, for an engine may be tested in a child, which loads it too.
            options = head.engine_options(guard.folder / "contexts")
            guard.choose(head.engine, options)
            from trainer.determinism import be_deterministic
            from trainer.predict.base import open_base

            be_deterministic()
            self._base, self._engine = open_base(self._home, head, guard, self._budget)
        except Interrupted:
            guard.close()
            raise Refused(503, "expected time to open the engine, found none; ask again") from None
        except AnotherLibraryPath as found:
            self._inbox.end()
            raise Refused(503, f"{found}; ask again") from None
        except BaseException:
            guard.close()
            raise
        self._guard = guard
        _log.info("%s is open on %s: %s", head.model, self._engine.name, self._engine.why)

    def _reason_to_stop(self) -> str | None:
        if self._terminated:
            return _ENDS
        return "nobody reads the answers" if self._protocol.abandoned() else None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True
        self._inbox.end()

    def _watch_standard_input(self) -> None:
        lines = LineBuffer()
        while some := os.read(0, 65_536):
            for line in lines.feed(some):
                self._inbox.put(line)
        self._inbox.end()


def predict(home: Path, budget: int) -> int:
    """Answer until the end; returns the exit code."""
    protocol = Protocol({})
    lock = home / "worker.lock"
    if take_lock(lock) is None:
        error = f"expected to be the only one with torch, but {lock_holder(lock)} holds worker.lock"
        _log.error("%s", error)
        protocol.emit("failed", {"error": error})
        return LOCKED
    let_idle_threads_sleep()
    with scratch(home):
        return _serve(Predictor(home, budget, protocol), protocol)


def _serve(predictor: Predictor, protocol: Protocol) -> int:
    try:
        predictor.serve()
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        _log.error("a %s ends the process that answers\n%s", type(error).__name__, frames)
        sentence = f"a {type(error).__name__} that nobody expected; the log says where"
        protocol.emit("failed", {"error": sentence})
        return FAILED
    finally:
        predictor.close()
    return FINISHED


def main() -> None:
    """Command line of the process."""
    parser = argparse.ArgumentParser(prog="python -m trainer.predictor", description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--memory-mb", type=int, required=True)
    arguments = parser.parse_args()
    os.umask(0o077)
    os.nice(arguments.nice)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    leave(predict(arguments.home, arguments.memory_mb * _MIB))


if __name__ == "__main__":
    main()
