"""The real `openai` client with the daemon: chats, streams, what is refused, and how it is told."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import DefaultHttpxClient, OpenAI

from tests.service.apps import pair
from tests.service.daemon import Daemon, kill, until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
COUNTED = "one two three four five six seven eight nine ten"


def client_of(daemon: Daemon, token: str | None = None) -> OpenAI:
    return OpenAI(
        base_url=f"http://127.0.0.1:{daemon.port}/v1",
        api_key=token or daemon.token,
        max_retries=0,
        http_client=DefaultHttpxClient(trust_env=False),
    )


@pytest.fixture(scope="module")
def client(shared: Daemon) -> Iterator[OpenAI]:
    with client_of(shared) as client:
        yield client


def test_adapters_are_models(client: OpenAI, shared: Daemon) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) >= {"phone", "free", "empty", "cutting"}
    assert models["phone"].owned_by == "owner"
    assert abs(models["phone"].created - time.time()) < 3600


def test_a_whole_answer(client: OpenAI) -> None:
    found = client.chat.completions.create(model="free", messages=HELLO, seed=0)
    [choice] = found.choices
    assert (choice.message.role, choice.message.content) == ("assistant", COUNTED)
    assert choice.finish_reason == "stop"
    assert found.model == "free"
    assert found.system_fingerprint == "base"
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found.usage.completion_tokens == 10
    again = client.chat.completions.create(model="free", messages=HELLO, seed=0)
    assert again.id != found.id


def test_what_limits_an_answer(client: OpenAI) -> None:
    def choice(**options: Any) -> tuple[str | None, str]:
        found = client.chat.completions.create(model="free", messages=HELLO, seed=0, **options)
        return found.choices[0].message.content, found.choices[0].finish_reason

    assert choice(max_tokens=2) == ("one two", "length")
    assert choice(max_tokens=2, max_completion_tokens=3) == ("one two three", "length")
    assert choice(stop="thr") == ("one two", "stop")
    assert choice(stop=["zz", "four"]) == ("one two three", "stop")
    assert choice(n=1, logprobs=False, presence_penalty=0.0, user="me", stop=None)[1] == "stop"


def test_messages_of_all_roles_and_in_parts(client: OpenAI) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    messages: list[Any] = [
        {"role": "developer", "content": "count"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "go on"},
    ]
    found = client.chat.completions.create(model="free", messages=messages)
    assert found.usage is not None
    assert found.usage.prompt_tokens == 4  # the stand-in counts messages


def test_a_stream_chunk_by_chunk(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="phone",
            messages=HELLO,
            max_tokens=3,
            seed=1,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    first, *pieces, last, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert [one.choices[0].delta.content for one in pieces] == ["two", " three", " four"]
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == ("length", None)
    assert [one.choices[0].finish_reason for one in (first, *pieces)] == [None] * 4
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 3
    assert [one.usage for one in (first, *pieces, last)] == [None] * 5
    heads = {(one.id, one.object, one.created, one.model) for one in chunks}
    [(_, kind, _, model)] = heads
    assert (kind, model) == ("chat.completion.chunk", "phone")


def test_the_clients_own_stream_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(model="free", messages=HELLO, seed=0) as stream:
        events = list(stream)
    said = [event.delta for event in events if event.type == "content.delta" and event.delta]
    assert "".join(said) == COUNTED
    assert len(said) == 10
    assert [event.content for event in events if event.type == "content.done"] == [COUNTED]
    final = stream.get_final_completion()
    assert final.choices[0].message.content == COUNTED
    assert final.choices[0].finish_reason == "stop"


def test_a_raw_stream_ends_with_done(shared: Daemon) -> None:
    body = {"model": "free", "messages": HELLO, "stream": True}
    response = shared.http.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") for event in events[:-1])
    assert '"usage"' not in response.text


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: OpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="free", messages=HELLO, **options)
    assert refused.value.param == param
    assert refused.value.code == "unsupported_parameter"
    assert refused.value.type == "invalid_request_error"
    assert f"{param} is not supported" in str(refused.value)
    problem = refused.value.response.json()
    assert refused.value.response.headers["content-type"] == "application/problem+json"
    assert problem["status"] == 400
    assert problem["errors"][0]["field"] == f"body.{param}"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0].role"),
        ({"stop": ["a"] * 5}, "stop"),
    ],
)
def test_what_is_out_of_bounds_names_its_parameter(
    client: OpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**({"model": "free", "messages": HELLO} | options))
    assert str(refused.value.param).startswith(param)
    assert refused.value.code is None


def test_statuses_become_the_clients_exceptions(client: OpenAI, shared: Daemon) -> None:
    with pytest.raises(openai.NotFoundError) as absent:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert absent.value.code == "model_not_found"
    assert "there is no adapter of that name" in str(absent.value)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=HELLO, stream=True)
    with client_of(shared, "x" * 40) as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    with pair(shared, "chatter", "predict") as app, client_of(shared, app.token) as own:
        assert own.models.list().data == []
        with pytest.raises(openai.NotFoundError) as theirs:
            own.chat.completions.create(model="phone", messages=HELLO)
        assert str(theirs.value).replace("phone", "nobody") == str(absent.value)
    with (
        pair(shared, "reader", "status:read") as app,
        client_of(shared, app.token) as reader,
        pytest.raises(openai.PermissionDeniedError),
    ):
        reader.chat.completions.create(model="phone", messages=HELLO)


def test_a_child_that_dies_amid_a_stream_is_an_error_of_the_client(own: Daemon) -> None:
    own.predictor(seconds=0.2)
    with client_of(own) as client:
        stream = client.chat.completions.create(model="phone", messages=HELLO, stream=True, seed=0)
        pieces = [next(stream).choices[0].delta.content for _ in range(3)]
        assert pieces == ["", "one", " two"]
        kill(own.worker_pid())
        with pytest.raises(openai.APIError, match="killed by SIGKILL"):
            list(stream)


def test_a_stream_that_is_closed_ends_the_work_on_it(own: Daemon) -> None:
    own.predictor(seconds=0.2)
    log = own.home / "predictor.log"
    with client_of(own) as client:
        stream = client.chat.completions.create(model="phone", messages=HELLO, stream=True)
        next(stream)
        child = own.worker_pid()
        stream.close()
        until(lambda: "is over" in log.read_text(), 10)
        own.predictor()
        found = client.chat.completions.create(model="phone", messages=HELLO, max_tokens=1)
        assert found.choices[0].finish_reason == "length"
        assert own.worker_pid() == child


def test_pieces_come_as_they_are_made(own: Daemon) -> None:
    own.predictor(seconds=0.3)
    with client_of(own) as client:
        stream = client.chat.completions.create(model="phone", messages=HELLO, stream=True)
        times = [time.monotonic() for chunk in stream if chunk.choices[0].delta.content]
    assert times[-1] - times[0] > 1.5


def test_two_streams_at_once_are_whole_both(shared: Daemon) -> None:
    texts: dict[int, str] = {}

    def read(seed: int) -> None:
        with client_of(shared) as client:
            stream = client.chat.completions.create(
                model="free", messages=HELLO, stream=True, seed=seed
            )
            texts[seed] = "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in (0, 1)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert texts == {0: COUNTED, 1: COUNTED.removeprefix("one ")}
