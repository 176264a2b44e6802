"""What the Kotlin client's source says of the API is what the daemon's own description says."""

import re
from typing import Any

import pytest

from tests.service.daemon import Daemon
from tests.service.kotlin.program import CLIENT, SAMPLE

SOURCE = CLIENT.read_text()
CALLS = {
    "createAdapter": ("post", "/v1/adapters", {"name", "labels"}, set()),
    "adapter": ("get", "/v1/adapters/{}", set(), set()),
    "postExamples": ("post", "/v1/adapters/{}/examples", {"examples"}, set()),
    "deleteExample": ("delete", "/v1/adapters/{}/examples", set(), {"external_id"}),
    "deleteAllExamples": ("delete", "/v1/adapters/{}/examples", set(), {"all"}),
    "predict": ("post", "/v1/adapters/{}/predict", {"inputs", "prior"}, set()),
    "train": ("post", "/v1/adapters/{}/runs", set(), set()),
    "run": ("get", "/v1/runs/{}", set(), set()),
    "watch": ("get", "/v1/runs/{}/events", set(), set()),
    "pair": ("post", "/v1/pair", {"code"}, set()),
    "demandProof": ("get", "/v1/hello", set(), {"nonce", "key"}),
}


@pytest.fixture(scope="module")
def api(shared: Daemon) -> dict[str, Any]:
    document: dict[str, Any] = shared.http.get("/openapi.json").json()
    return document


def functions() -> dict[str, tuple[str, str, set[str], set[str]]]:
    """Each function that names a route: its method and path, body's fields and query's names."""
    found = {}
    for name, code in re.findall(r"\bfun (\w+)\((.*?)(?=\n\n|\n}|\Z)", SOURCE, re.DOTALL):
        for url in re.findall(r"(/v1/[^\"\s]*)", code):
            verb = re.search(r'"(GET|POST|DELETE)", "/v1', code)
            method = verb[1].lower() if verb else "post" if ".post(" in code else "get"
            path, _, query = re.sub(r"\$\{[^}]*\}|\$\w+", "{}", url).partition("?")
            fields = set(re.findall(r'\.put(?:Opt)?\("(\w+)"', code.split("val given")[0]))
            found[name] = (method, path, fields, set(re.findall(r"(\w+)=", query)))
    return found


def operation(api: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    [template] = [known for known in api["paths"] if re.sub(r"\{\w+\}", "{}", known) == path]
    found: dict[str, Any] = api["paths"][template][method]
    return found


def fields_of(api: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """What an object of this schema, or of any of those it offers, may have."""
    if "$ref" in schema:
        return schema_of(api, schema["$ref"].rsplit("/", 1)[1])
    return {name for each in schema.get("anyOf", []) for name in fields_of(api, each)}


def schema_of(api: dict[str, Any], name: str) -> set[str]:
    return set(api["components"]["schemas"][name]["properties"])


def test_the_source_is_read_whole() -> None:
    """Whoever adds a call has to name it above, and so to what it is compared."""
    assert functions() == CALLS
    assert SOURCE.count("/v1/") == len(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_paths_methods_and_fields_are_the_api_s(api: dict[str, Any], call: str) -> None:
    method, path, fields, query = CALLS[call]
    described = operation(api, method, path)
    if fields:
        body = described["requestBody"]["content"]["application/json"]["schema"]
        assert fields <= fields_of(api, body)
    parameters = {each["name"] for each in described.get("parameters", [])}
    assert query <= parameters
    if call == "watch":
        assert "Last-Event-ID" in parameters
    if method != "get" and call not in ("pair", "predict"):  # of a prediction nothing is kept
        assert "Idempotency-Key" in parameters


def test_what_is_read_from_answers_is_in_them(api: dict[str, Any]) -> None:
    read = set(re.findall(r'\.(?:getString|getInt|opt\w+)\("(\w+)"\)', SOURCE))
    assert read == {
        *("port", "token", "server_key_id", "server_key"),
        *("detail", "errors", "field", "message"),
    }
    assert {"token", "server_key_id", "server_key"} <= schema_of(api, "Credentials")
    assert {"detail", "errors"} <= schema_of(api, "Problem")
    assert {"field", "message"} <= schema_of(api, "FieldError")
    assert "proof" in schema_of(api, "Hello")
    passing = re.search(r"PASSING = setOf\(([\d, ]+)\)", SOURCE)
    assert passing is not None
    described = operation(api, "post", "/v1/adapters/{}/examples")["responses"]
    assert set(passing[1].split(", ")) <= set(described)


def test_what_the_comments_name_is_in_the_api(api: dict[str, Any]) -> None:
    """Each name in backquotes that looks like a field."""
    comments = "".join(re.findall(r"/\*\*.*?\*/", SOURCE, re.DOTALL))
    events = {"snapshot", "end"}
    named = set(re.findall(r"`([a-z_]+)`", comments)) - events
    assert {"when", "warm_start", "training", "input", "label", "external_id"} <= named
    known: set[str] = set()
    for name in api["components"]["schemas"]:
        known |= set(api["components"]["schemas"][name].get("properties", {}))
    assert named <= known


def test_the_page_s_kotlin_is_cut_from_what_is_compiled() -> None:
    page = CLIENT.with_name("README.md").read_text()
    blocks = re.findall(r"^```kotlin\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        for source in (SOURCE, SAMPLE.read_text()):
            lines = [line.strip() for line in source.splitlines()]
            wanted = [line.strip() for line in block.splitlines()]
            if any(lines[at : at + len(wanted)] == wanted for at in range(len(lines))):
                break
        else:
            pytest.fail(f"is neither in LoradClient.kt nor in the sample:\n{block}")
