"""Finding a caller's things, or saying 404 in the same words whether or not others have them."""

from sqlmodel import Session

from api_schemas.runs import Run as RunAnswer
from service.clients.auth import Caller
from service.door.problems import Refusal
from service.views import run_answer
from storage import adapters, clients, examples, runs, versions
from storage.tables import Adapter, Client, Example, Run, Version


def client_or_401(session: Session, caller: Caller) -> Client:
    """The caller's row, if it is there and the sender's token still stands.

    Both may have gone since the request was let in. In a write transaction this is the last word:
    once a revocation is answered, nothing more is kept of what that token sends.
    """
    client = session.get(Client, caller.id)
    if client is None or caller.token is None or not clients.has_token(session, caller.token):
        raise Refusal(
            401,
            "the token was revoked or replaced a moment ago; pair again, or use the new one",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return client


def adapter_or_404(session: Session, caller: Caller, name: str) -> Adapter:
    """The caller's adapter of that name."""
    adapter = adapters.find(session, caller.id, name)
    if adapter is None:
        raise Refusal(404, "there is no adapter of that name; GET /v1/adapters lists them")
    return adapter


def run_or_404(session: Session, caller: Caller, run_id: int) -> Run:
    """The caller's run with that id."""
    run = runs.find(session, caller.id, run_id)
    if run is None:
        raise Refusal(404, "there is no run with that id; GET /v1/adapters/{name}/runs lists them")
    return run


def run_answer_or_404(session: Session, caller: Caller, run_id: int) -> RunAnswer:
    """The caller's run with that id, as it is told."""
    run = run_or_404(session, caller, run_id)
    adapter = adapters.by_id(session, run.adapter_id)
    assert adapter is not None  # a foreign key, in one snapshot
    version = versions.of_run(session, run.id)
    return run_answer(run, adapter.name, None if version is None else version.number)


def version_or_404(session: Session, adapter: Adapter, number: int) -> Version:
    """The adapter's version with that number."""
    version = versions.find(session, adapter.id, number)
    if version is None:
        raise Refusal(
            404, "the adapter has no version with that number; GET its /versions lists them"
        )
    return version


def example_or_404(session: Session, adapter: Adapter, example_id: int) -> Example:
    """The adapter's example with that id."""
    example = examples.find(session, adapter.id, example_id)
    if example is None:
        raise Refusal(404, "the adapter has no example with that id; GET its /examples lists them")
    return example
