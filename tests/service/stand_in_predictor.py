"""A predictor that speaks the real one's protocol and computes nothing.

HOME/predictor.json tells how to misbehave: ``seconds`` an answer and a token take, ``deaf`` (to
cancels), ``stubborn`` (also to SIGTERM and the end of its standard input), ``say`` (a line in place
of each answer, with NUMBER for the question's), ``suffers`` (a signal's name, an exit code, or
`failed`, in place of each answer).
Its standard error, and so its log, tells of each question without its text.
"""

import fcntl
import json
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

DEFAULTS: dict[str, Any] = {
    "seconds": 0.0,
    "deaf": False,
    "stubborn": False,
    "say": None,
    "suffers": None,
    "start_seconds": 0.0,
}
TOO_LONG = "too long to be read"
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def answers(
    question: dict[str, Any], rest: Callable[[], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that answer; ``rest`` passes the time, and says whether to give up."""
    if rest():
        yield "cancelled", {}
    elif question["op"] == "labels":
        yield labels(question)
    else:
        yield from text(question, rest)


def labels(question: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Each input's label is the first that is in it; with a prior, the most frequent one."""
    found = []
    for place, one in enumerate(question["inputs"]):
        if TOO_LONG in one and question["too_long"] == "refuse":
            error = "expected an input of fewer tokens; shorten it"
            return "refused", {"status": 422, "error": error, "field": f"inputs.{place}"}
        names = question["labels"]
        label = next((name for name in names if name in one), names[0])
        if question["prior"] is not None:
            label = Counter(question["prior"]["history"]).most_common(1)[0][0]
        rest = 0.3 / max(1, len(names) - 1)
        shares = {name: 0.7 if name == label else rest for name in names}
        found.append({"label": label, "probabilities": shares, "cut_tokens": len(one) % 2})
    return "answer", {"predictions": found, "engine": "stand_in"}


def text(
    question: dict[str, Any], rest: Callable[[], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Counts from the seed on, and ends at ten or where it must."""
    words = WORDS[question["seed"] % 2 :]
    made: list[str] = []
    finish = "stop"
    for word in words:
        if any(stop in f" {word}" for stop in question["stop"]):
            break
        if len(made) == question["max_tokens"]:
            finish = "length"
            break
        if made and rest():
            yield "cancelled", {}
            return
        made.append(f" {word}" if made else word)
        if question["stream"]:
            yield "token", {"text": made[-1]}
    usage = {"prompt_tokens": len(question["messages"]), "completion_tokens": len(made)}
    answer = {"text": "".join(made), "finish_reason": finish, "usage": usage, "engine": "stand_in"}
    yield "answer", answer


class Predictor:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.questions: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.cancelled: set[int] = set()

    @property
    def script(self) -> dict[str, Any]:
        file = self.home / "predictor.json"
        return DEFAULTS | (json.loads(file.read_text()) if file.exists() else {})

    def say(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), flush=True)

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "cancel" in message:
                self.cancelled.add(message["cancel"])
            else:
                self.questions.put(message)
        self.questions.put(None)

    def rest(self, number: int) -> bool:
        end = time.monotonic() + self.script["seconds"]
        while time.monotonic() < end:
            if number in self.cancelled and not self.script["deaf"]:
                return True
            time.sleep(0.01)
        return False

    def work(self) -> int:
        time.sleep(self.script["start_seconds"])
        self.say("ready")
        threading.Thread(target=self.listen, daemon=True).start()
        while (question := self.questions.get()) is not None or self.script["stubborn"]:
            if question is None:
                continue
            number = question["id"]
            about = f"{question['op']} of {question['version']} on {question['engine']}"
            print(f"question {number}: {about}", file=sys.stderr, flush=True)
            if (suffers := self.script["suffers"]) is not None:
                return self.suffer(suffers)
            for event, fields in answers(question, partial(self.rest, number)):
                if (line := self.script["say"]) is not None:
                    print(line.replace("NUMBER", str(number)), flush=True)
                else:
                    self.say(event, id=number, **fields)
            print(f"question {number} is over", file=sys.stderr, flush=True)
        return 0

    def suffer(self, what: str | int) -> int:
        if isinstance(what, int):
            return what
        if what == "failed":
            self.say("failed", error="expected a model, found none; add one")
            return 1
        os.kill(os.getpid(), signal.Signals[what])
        time.sleep(60)
        return 0


def main() -> int:
    home = Path(sys.argv[1])
    lock = os.open(home / "worker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    predictor = Predictor(home)
    if predictor.script["stubborn"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return predictor.work()


if __name__ == "__main__":
    sys.exit(main())
