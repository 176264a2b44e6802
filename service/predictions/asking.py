"""From a request to a question: which base model, which version, on which engine."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Request
from sqlmodel import Session

from service.clients.auth import Caller
from service.context import Context
from service.door.problems import Refusal
from service.predictions.events import Answer, LabelsOfInput, Token, Usage
from service.predictions.question import Question
from service.routes.lookups import adapter_or_404, version_or_404
from service.runs.trigger import require_base_model
from service.versions.activation import GONE
from service.versions.files import MANIFEST_NAME
from storage import versions
from storage.example_labels import latest_labels
from storage.tables import Adapter, Version

FinishReason = Literal["stop", "length"]

_MISMATCH = "restart lorad, if it was updated while it ran"

MOST_HISTORY = 1000
"""Labels that the prior looks back on: far more than its decay leaves any weight to."""


@dataclass(frozen=True)
class Addressee:
    """Who is asked: an adapter's version, or the bare base model."""

    adapter: Adapter
    version: Version | None
    client_id: int
    engine: Mapping[str, Any]
    history: Sequence[str] = ()
    """The labels of the adapter's examples, oldest first, where a prior is asked for."""

    @property
    def number(self) -> int | None:
        """The version's number; None of the bare base model."""
        return None if self.version is None else self.version.number

    def about_labels(self, inputs: Sequence[str], *, prior: bool) -> Question:
        """Which of the adapter's labels each input has."""
        return self._question(
            op="labels",
            inputs=list(inputs),
            labels=self.adapter.labels,
            too_long=self.adapter.too_long,
            max_tokens=self.adapter.max_tokens,
            prior={"history": list(self.history)} if prior and self.history else None,
        )

    def about_text(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Question:
        """How a chat goes on."""
        return self._question(op="text", messages=list(messages), **options)

    def _question(self, **fields: Any) -> Question:
        head = {
            "model": self.adapter.base_model,
            "base_hash": self.adapter.base_hash,
            "version": None if self.version is None else self.version.path,
            "engine": dict(self.engine),
        }
        return Question(self.client_id, self.adapter.base_hash, head | fields)


def addressee(
    context: Context,
    session: Session,
    caller: Caller,
    name: str,
    *,
    number: int | None = None,
    prior: bool = False,
) -> Addressee:
    """The caller's adapter of that name, in its active version or the one with that number.

    Raises:
        Refusal: 404 if there is none, 409 if its base model isn't there, 410 if its files are gone.
    """
    adapter = adapter_or_404(session, caller, name)
    require_base_model(context, adapter)
    if number is None:
        version = versions.active(session, adapter.id)
    else:
        version = version_or_404(session, adapter, number)
    if version is not None and not (context.home.path / version.path / MANIFEST_NAME).is_file():
        raise Refusal(410, GONE)
    return Addressee(
        adapter,
        version,
        caller.id,
        context.settings.engine_options,
        latest_labels(session, adapter.id, limit=MOST_HISTORY) if prior else (),
    )


async def next_of(request: Request, question: Question) -> Token | Answer:
    """What comes next of an answer, while the client is there.

    Raises:
        Refusal: there is no answer; 408 if the client has gone.
    """
    answer = asyncio.ensure_future(question.channel.get())
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise Refusal(408, "the client has gone away before the answer")
    finally:
        answer.cancel()
        gone.cancel()


async def whole_answer(context: Context, request: Request, question: Question) -> Answer:
    """Ask, and wait for the answer.

    Raises:
        Refusal: there is none.
    """
    context.predictions.ask(question)
    try:
        while not isinstance(found := await next_of(request, question), Answer):
            continue
        return found
    finally:
        context.predictions.leave(question)


def text_of(answer: Answer) -> tuple[str, FinishReason, Usage]:
    """The text, why it ends, and how many tokens it took.

    Raises:
        Refusal: 502 if it is no answer to such a question.
    """
    if answer.text is None or answer.finish_reason is None or answer.usage is None:
        raise Refusal(
            502, f"expected a text from the process that predicts, found none; {_MISMATCH}"
        )
    return answer.text, answer.finish_reason, answer.usage


def labels_of(answer: Answer, inputs: int) -> list[LabelsOfInput]:
    """What was said of so many inputs.

    Raises:
        Refusal: 502 if it is no answer to such a question.
    """
    found = answer.predictions or []
    if len(found) != inputs or any(one.label not in one.probabilities for one in found):
        raise Refusal(502, f"expected {inputs} labels from the process that predicts; {_MISMATCH}")
    return found


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
