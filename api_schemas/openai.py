"""The part of OpenAI's chat API that lorad speaks."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api_schemas.base import Answer, Name, Request, without_nul
from api_schemas.predictions import MOST_STOPS, NewTokens, Seed, Stop, Temperature, TopP
from api_schemas.problems import Problem

MOST_MESSAGES = 500
MOST_TEXT = 100_000


def _no(value: bool) -> bool:
    if value:
        raise ValueError("must be false")
    return value


ChatText = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(without_nul)]


class TextPart(Request):
    """A part of a message; only text is understood."""

    type: Literal["text"]
    text: ChatText


class Message(Request):
    """One message of a chat. ``developer`` is another word for ``system``."""

    role: Literal["system", "developer", "user", "assistant"]
    content: ChatText | Annotated[list[TextPart], Field(min_length=1, max_length=MOST_MESSAGES)]

    def plain(self) -> dict[str, str]:
        """With the words and the one text that a chat template knows."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "".join(part.text for part in self.content)}


class StreamOptions(Request):
    """How a stream is told."""

    include_usage: bool | None = None


class ChatRequest(Request):
    """A chat that the adapter ``model`` goes on with. What isn't listed here is refused by name."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "phone", "messages": [{"role": "user", "content": "Hello"}]}]
        }
    )

    model: Name = Field(description="An adapter's name.")
    messages: list[Message] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_tokens: NewTokens | None = None
    max_completion_tokens: NewTokens | None = Field(
        default=None, description="Another word for max_tokens, and before it."
    )
    temperature: Temperature | None = Field(default=None, description="1 by default.")
    top_p: TopP | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    seed: Seed | None = Field(default=None, description="Drawn by chance if left out.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    logprobs: (
        Annotated[bool, Field(json_schema_extra={"const": False}), AfterValidator(_no)] | None
    ) = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    user: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None, description="Taken, and used for nothing."
    )

    def new_tokens(self, default: int) -> int:
        """How many tokens the answer may have."""
        return self.max_completion_tokens or self.max_tokens or default

    def stops(self) -> list[str]:
        """The texts before which the answer ends."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


class ChatUsage(Answer):
    """Tokens read and made."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AssistantMessage(Answer):
    """What the adapter says."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(Answer):
    """The one answer."""

    index: Literal[0] = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Answer):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Seconds since 1970 UTC.")
    model: str
    system_fingerprint: str = Field(description="`version-3`, or `base` of the bare base model.")
    choices: list[Choice]
    usage: ChatUsage


class Delta(Answer):
    """What a chunk adds: the role first, then text, at last nothing."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(Answer):
    """The one answer, a piece of it."""

    index: Literal[0] = 0
    delta: Delta
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None = None


class ChatChunk(Answer):
    """One event of a stream; that of ``usage``, where it is asked for, has no choices."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: ChatUsage | None = None


class ErrorInside(BaseModel):
    """An error in OpenAI's words."""

    model_config = ConfigDict(frozen=True)

    message: str
    type: str = Field(examples=["invalid_request_error", "server_error"])
    param: str | None = Field(description="The parameter at fault.")
    code: str | None = Field(examples=["unsupported_parameter", "model_not_found"])


class OpenAIProblem(Problem):
    """A problem (RFC 9457) with the member ``error``, which OpenAI's clients read."""

    error: ErrorInside | None = Field(
        default=None, description="Not where the door itself refuses, before the request is read."
    )
