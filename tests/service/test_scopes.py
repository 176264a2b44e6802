"""Each operation asks for the scopes that it says it asks for, before anything else."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from api_schemas.scopes import ADMIN, MEANINGS, SCOPES, Scope
from service.door.guard import PUBLIC_PATHS
from tests.service.apps import App, pair
from tests.service.daemon import Daemon
from tests.service.operations import Operation, every

NONSENSE = {
    "name": "no-such-thing",
    "run_id": 424242,
    "number": 424242,
    "example_id": 424242,
    "erasure_id": 424242,
}


class Wardrobe:
    """A client for each set of scopes, paired when first asked for."""

    def __init__(self, daemon: Daemon, stack: ExitStack) -> None:
        self.daemon = daemon
        self.stack = stack
        self.apps: dict[frozenset[str], App] = {}

    def with_scopes(self, *scopes: Scope) -> httpx.Client:
        wanted = frozenset(scopes)
        if wanted not in self.apps:
            app = pair(self.daemon, f"app{len(self.apps)}", *scopes)
            self.apps[wanted] = self.stack.enter_context(app)
        return self.apps[wanted].http


@pytest.fixture(scope="module")
def wardrobe(shared: Daemon) -> Iterator[Wardrobe]:
    with ExitStack() as stack:
        yield Wardrobe(shared, stack)


def send(operation: Operation, http: httpx.Client, **query: str) -> tuple[int, str]:
    valid = operation.valid()
    valid["params"] = valid["params"] | query
    return operation.send(http, NONSENSE, **valid)


def test_every_operation_says_who_may_use_it(shared: Daemon) -> None:
    for operation in every(shared):
        assert (operation.scopes is None) == (operation.path in PUBLIC_PATHS), operation
        assert set(operation.scopes or ()) <= set(SCOPES), operation
    asked = {scope for operation in every(shared) for scope in operation.scopes or ()}
    assert asked >= {"examples:write", "status:read", "adapters:manage", "train", "admin"}
    assert set(MEANINGS) == set(SCOPES)


def test_all_the_other_scopes_together_do_not_open(shared: Daemon, wardrobe: Wardrobe) -> None:
    """403 before 404 and before 422: nothing is learnt about names, bodies or queries."""
    for operation in every(shared):
        if not operation.scopes:
            continue
        others = [s for s in SCOPES if s not in (*operation.scopes, ADMIN)]
        http = wardrobe.with_scopes(*others)
        answers = {
            send(operation, http),
            send(operation, http, limit="0", client="x" * 99),
            operation.send(http, NONSENSE, json={"no": "body of it"}),
        }
        [(status, text)] = answers
        assert status == 403, (str(operation), text)
        for scope in operation.scopes:
            assert scope in text


def test_each_of_the_scopes_alone_opens(shared: Daemon, wardrobe: Wardrobe) -> None:
    for operation in every(shared):
        for scope in operation.scopes or ():
            if scope == ADMIN:
                continue
            status, text = send(operation, wardrobe.with_scopes(scope))
            assert status not in (401, 403), (str(operation), scope, text)


def test_admin_alone_opens_everything_for_every_client(shared: Daemon, wardrobe: Wardrobe) -> None:
    admin, other = wardrobe.with_scopes(ADMIN), wardrobe.with_scopes("train")
    assert other.get("/v1/client").status_code == 200
    name = other.get("/v1/client").json()["name"]
    for operation in every(shared):
        if operation.path == "/v1/client/rotate":
            continue
        status, text = send(operation, admin)
        assert status not in (401, 403) or operation.scopes is None, (str(operation), text)
        if "client" in operation.queries:
            status, text = send(operation, admin, client=name)
            assert status not in (401, 403), (str(operation), text)
            status, text = send(operation, admin, client="nobody")
            assert (status, "no client of that name" in text) == (404, True), str(operation)


def test_who_may_nothing_else_still_knows_itself(shared: Daemon, wardrobe: Wardrobe) -> None:
    http = wardrobe.with_scopes("train:override")
    for operation in every(shared):
        if operation.scopes == ():
            assert operation.path in ("/v1/client", "/v1/client/rotate")
            if operation.method == "GET":
                assert send(operation, http)[0] == 200
    assert http.get("/openapi.json").status_code == 200


def test_without_a_token_only_the_public_paths_answer(shared: Daemon) -> None:
    with httpx.Client(
        base_url=f"http://127.0.0.1:{shared.port}", trust_env=False, timeout=30
    ) as stranger:
        operations = list(every(shared))
        with ThreadPoolExecutor(16) as at_once:  # each of them waits for having no token
            answers = list(at_once.map(lambda operation: send(operation, stranger), operations))
    for operation, (status, _) in zip(operations, answers, strict=True):
        assert (status == 401) == (operation.scopes is not None), operation
