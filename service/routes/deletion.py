"""DELETE of examples, versions, adapters and clients."""

from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Query, Response
from sqlmodel import Session

from api_schemas.base import LARGEST_ID, ExternalId
from api_schemas.deletion import Deleted, Erased, ExamplesDeleted
from service.clients.auth import Caller
from service.context import Context, TheCaller, TheContext, needs
from service.door.idempotency import Idempotency, TheIdempotency
from service.door.problems import Refusal, invalid
from service.door.strict_route import StrictRoute
from service.routes.lookups import adapter_or_404, version_or_404
from service.routes.responses import problems
from service.versions.needed import needed
from storage import clients, deletion, erasures
from storage.tables import Adapter, Version

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["deletion"])

D = TypeVar("D", bound=Deleted)

Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.delete(
    "/adapters/{name}/examples/{example_id}",
    responses=problems(404, 409),
    response_model=ExamplesDeleted,
    dependencies=[needs("examples:write", "adapters:manage")],
)
def delete_example(
    name: str, example_id: Id, context: TheContext, caller: TheCaller, idempotency: TheIdempotency
) -> ExamplesDeleted | Response:
    """Delete one example. A run in flight goes on without it from its next step on."""
    return _delete_examples(context, caller, name, idempotency, example_id=example_id)


@router.delete(
    "/adapters/{name}/examples",
    responses=problems(404, 409),
    response_model=ExamplesDeleted,
    dependencies=[needs("examples:write", "adapters:manage")],
)
def delete_examples(
    name: str,
    context: TheContext,
    caller: TheCaller,
    idempotency: TheIdempotency,
    external_id: Annotated[ExternalId | None, Query(description="The one of this id.")] = None,
    all: Annotated[bool, Query(description="true: every example of the adapter.")] = False,
) -> ExamplesDeleted | Response:
    """Delete the example of an `external_id`, or with `all=true` every one: give one of the two."""
    if (external_id is None) == (not all):
        raise invalid(
            (
                "query.external_id",
                "give either external_id=…, for one example, or all=true, for every example of "
                "the adapter",
            )
        )
    return _delete_examples(context, caller, name, idempotency, external_id=external_id)


@router.delete(
    "/adapters/{name}/versions/{number:int}",
    responses=problems(404, 409),
    response_model=Deleted,
    dependencies=[needs("adapters:manage")],
)
def delete_version(
    name: str, number: Id, context: TheContext, caller: TheCaller, idempotency: TheIdempotency
) -> Deleted | Response:
    """Delete a version and its files. The active one can't be deleted, nor one that a run needs."""
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        version = version_or_404(session, adapter, number)
        _require_unneeded(context, session, adapter, version)
        erasure = deletion.delete_version(session, adapter, version)
        answer = Deleted(deleted=0, erased="pending", erasure=erasure.id)
        idempotency.remember(session, 200, answer, adapter_id=adapter.id)
    return _erase(context, idempotency, answer)


@router.delete(
    "/adapters/{name}",
    responses=problems(404, 409),
    response_model=Deleted,
    dependencies=[needs("adapters:manage")],
)
def delete_adapter(
    name: str, context: TheContext, caller: TheCaller, idempotency: TheIdempotency
) -> Deleted | Response:
    """Delete an adapter with its examples, runs, versions and files; its training is killed."""
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        erasure = deletion.delete_adapter(session, adapter)
        answer = Deleted(deleted=erasure.examples, erased="pending", erasure=erasure.id)
        idempotency.remember(session, 200, answer)
    context.supervisor.abandon([adapter.id])
    return _erase(context, idempotency, answer)


@router.delete(
    "/clients/{name}",
    responses=problems(404, 409),
    response_model=Deleted,
    dependencies=[needs("admin")],
)
def delete_client(
    name: str, context: TheContext, idempotency: TheIdempotency
) -> Deleted | Response:
    """Delete a client with all its adapters, and its token. The owner can't be deleted."""
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        if name == clients.OWNER:
            raise Refusal(409, "the owner can't be deleted; delete its adapters one by one")
        client = clients.find(session, name)
        if client is None:
            raise Refusal(404, "there is no client of that name; GET /v1/clients lists them")
        adapter_ids, erasure = deletion.delete_client(session, client)
        answer = Deleted(deleted=erasure.examples, erased="pending", erasure=erasure.id)
        idempotency.remember(session, 200, answer)
    context.authenticator.learn(context.database)
    context.supervisor.abandon(adapter_ids)
    return _erase(context, idempotency, answer)


def _delete_examples(
    context: Context,
    caller: Caller,
    name: str,
    idempotency: Idempotency,
    *,
    example_id: int | None = None,
    external_id: str | None = None,
) -> ExamplesDeleted | Response:
    with context.database.write() as session:
        if (again := idempotency.replay(session)) is not None:
            return again
        adapter = adapter_or_404(session, caller, name)
        deleted = deletion.delete_examples(
            session, adapter, example_id=example_id, external_id=external_id
        )
        if not deleted.examples and (example_id, external_id) != (None, None):
            raise Refusal(404, "the adapter has no such example; GET its /examples lists them")
        run_id = deleted.witnesses.run_id
        answer = ExamplesDeleted(
            deleted=deleted.examples,
            erased="pending",
            erasure=deleted.erasure.id,
            versions=deleted.witnesses.versions,
            run=run_id,
            retrain=f"POST /v1/adapters/{adapter.name}/runs",
            restart=None if run_id is None else f"POST /v1/runs/{run_id}/restart",
        )
        idempotency.remember(session, 200, answer, adapter_id=adapter.id)
    context.supervisor.examples_changed(adapter.id)
    return _erase(context, idempotency, answer)


def _require_unneeded(
    context: Context, session: Session, adapter: Adapter, version: Version
) -> None:
    """Refuse to delete the active version, and one that an unfinished run has to do with."""
    if version.active:
        path = f"/v1/adapters/{adapter.name}/versions"
        raise Refusal(
            409,
            f"version {version.number} is active; activate another one "
            f"(POST {path}/{{number}}/activate) or none (POST {path}/{version.number}/deactivate), "
            "and delete it then",
        )
    use = needed(context.home, session, adapter.id)
    if use is None or version.path not in use.paths:
        return
    does = "began with" if version.path == use.begun_with else "is measured against"
    raise Refusal(
        409,
        f"run {use.run_id} {does} this version; wait for its end, or cancel it "
        f"(POST /v1/runs/{use.run_id}/cancel), and delete the version then",
    )


def _erase(context: Context, idempotency: Idempotency, answer: D) -> D:
    """Try to erase at once, and say whether it was done."""
    context.eraser.erase_now()
    with context.database.read() as session:
        row = erasures.find(session, answer.erasure)
    erased: Erased = "pending" if row is None or row.erased_at is None else "done"
    if erased == "pending":
        return answer
    answer = answer.model_copy(update={"erased": erased})
    if idempotency.given:
        with context.database.write() as session:
            idempotency.amend(session, answer)
    return answer
