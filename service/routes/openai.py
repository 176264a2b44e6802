"""POST /v1/chat/completions: OpenAI's chat API, in which an adapter is a model."""

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response

from api_schemas.openai import (
    AssistantMessage,
    ChatCompletion,
    ChatRequest,
    ChatUsage,
    Choice,
    OpenAIProblem,
)
from api_schemas.predictions import DEFAULT_NEW_TOKENS
from api_schemas.problems import MEDIA_TYPE as PROBLEM
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, TheSender, needs
from service.door.openai_route import OpenAIRoute, error_inside
from service.door.problems import Refusal
from service.predictions.asking import Addressee, addressee, next_of, text_of, whole_answer
from service.predictions.events import Answer, Token, Usage
from service.predictions.question import Question
from service.routes.responses import problems, schema_of
from service.runs.event_stream import MEDIA_TYPE, EventStream
from storage.clock import now_ms

router = APIRouter(prefix="/v1", route_class=OpenAIRoute, tags=["predictions"])

_CHANCE = 2**31
_DONE = b"data: [DONE]\n\n"
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "description": "A ChatChunk, or `[DONE]`."}},
}
_IN_BOTH_TONGUES = {PROBLEM: {"schema": schema_of(OpenAIProblem)}}


def _responses() -> dict[int | str, dict[str, Any]]:
    found = problems(404, 409, 410, 429, 502, body=True)
    every = {status: one | {"content": _IN_BOTH_TONGUES} for status, one in found.items()}
    every[400] = every[400] | {"description": "No JSON, or parameters that can't be accepted."}
    every[422] = every[422] | {"description": "Not of this route: it says 400 where others do."}
    every[200] = {
        "description": "The answer; with `stream`, events of ChatChunk, at last `[DONE]`.",
        "content": {MEDIA_TYPE: {"schema": _EVENT}},
    }
    return every


@router.post(
    "/chat/completions",
    response_model=ChatCompletion,
    responses=_responses(),
    dependencies=[needs("predict")],
)
async def complete_chat(
    request: Request,
    body: ChatRequest,
    context: TheContext,
    caller: TheCaller,
    sender: TheSender,
) -> ChatCompletion | Response:
    """Go on with a chat as OpenAI's API does; `model` is the name of an adapter.

    The adapter's active version answers, or the bare base model while there is none:
    `system_fingerprint` tells. An adapter with labels answers with text here, too. Nothing of it is
    kept. With `stream`, pieces come as they are made; a client that goes away ends it.
    """
    asked = await run_sync(_addressee, context, caller, body.model)
    question = asked.about_text(
        [one.plain() for one in body.messages],
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=body.top_p or 1.0,
        max_tokens=body.new_tokens(DEFAULT_NEW_TOKENS),
        stop=body.stops(),
        seed=secrets.randbelow(_CHANCE) if body.seed is None else body.seed,
        stream=bool(body.stream),
    )
    chat = _Chat(asked)
    if not body.stream:
        return chat.whole(await whole_answer(context, request, question))
    context.predictions.ask(question)
    try:
        first = await next_of(request, question)  # before it, a refusal still has its own status
    except BaseException:
        context.predictions.leave(question)
        raise
    with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    stream = _ChatStream(context, sender, chat, question, with_usage)
    return EventStream(stream.frames(first), lambda: context.predictions.leave(question))


def _addressee(context: Context, caller: Caller, name: str) -> Addressee:
    with context.database.read() as session:
        return addressee(context, session, caller, name)


@dataclass(frozen=True)
class _Chat:
    asked: Addressee
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: now_ms() // 1000)

    def head(self) -> dict[str, Any]:
        number = self.asked.number
        return {
            "id": self.id,
            "created": self.created,
            "model": self.asked.adapter.name,
            "system_fingerprint": "base" if number is None else f"version-{number}",
        }

    def whole(self, answer: Answer) -> ChatCompletion:
        text, finish_reason, usage = text_of(answer)
        return ChatCompletion(
            **self.head(),
            choices=[Choice(message=AssistantMessage(content=text), finish_reason=finish_reason)],
            usage=_usage(usage),
        )


@dataclass
class _ChatStream:
    context: Context
    sender: Caller
    chat: _Chat
    question: Question
    with_usage: bool

    async def frames(self, first: Token | Answer) -> AsyncIterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})
        event = first
        try:
            while isinstance(event, Token):
                yield self._chunk({"content": event.text})
                if not self.context.authenticator.still_valid(self.sender):
                    return
                event = await self.question.channel.get()
            _, finish_reason, usage = text_of(event)
        except Refusal as refusal:
            yield _frame({"error": error_inside(refusal).model_dump()})
            return
        yield self._chunk({}, finish_reason)
        if self.with_usage:
            yield _frame(self._head() | {"choices": [], "usage": _usage(usage).model_dump()})
        yield _DONE

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _frame(self._head() | {"choices": [choice]})

    def _head(self) -> dict[str, Any]:
        usage = {"usage": None} if self.with_usage else {}
        return {"object": "chat.completion.chunk", **self.chat.head(), **usage}


def _frame(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _usage(tokens: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=tokens.prompt_tokens,
        completion_tokens=tokens.completion_tokens,
        total_tokens=tokens.prompt_tokens + tokens.completion_tokens,
    )
