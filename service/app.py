"""The HTTP app: routes behind the guard, with every error a problem.

AccessLog ▶ LastResort ▶ Guard (host, origin, token) ▶ BodyLimit ▶ routes ▶ Context
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

from api_schemas.examples import PostedExample, PostedExamples
from api_schemas.openai import ChatChunk, OpenAIProblem
from api_schemas.problems import Problem
from service.clients.auth import Authenticator
from service.context import Context
from service.door import problems
from service.door.access_log import AccessLog
from service.door.body_limit import BodyLimit
from service.door.guard import Guard
from service.door.problems import LastResort
from service.routes import (
    adapters,
    clients,
    deletion,
    device,
    docs,
    erasures,
    examples,
    history,
    metrics,
    models,
    openai,
    page,
    pairing,
    pause,
    predictions,
    restart,
    run_events,
    runs,
    schedule,
    version_import,
    versions,
)
from service.routes.responses import add_answers_to_parameters, add_schemas, add_scopes
from storage.database import READERS_MOST

REQUEST_THREADS = READERS_MOST - 4
"""Requests at work at once. Each may hold a reader of the database, and the daemon's own threads
(the supervisor's, the eraser's) need the rest; further requests wait for a thread, not for a
reader, and so never fail for want of one."""

_SCHEMAS = (Problem, PostedExample, PostedExamples, OpenAIProblem, ChatChunk)
"""Those that the document points to and FastAPI doesn't put into it."""

_BEARER = HTTPBearer(auto_error=False, description="The guard checks it before any route.")


class LoradApp(FastAPI):
    """FastAPI whose OpenAPI document has the schema of problems, and says who may do what."""

    _making = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        with self._making:
            if self.openapi_schema is None:
                document = super().openapi()
                add_schemas(document, *_SCHEMAS)
                add_answers_to_parameters(document)
                add_scopes(document)
            assert self.openapi_schema is not None
            return self.openapi_schema


@asynccontextmanager
async def _few_threads(app: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = REQUEST_THREADS
    yield


def create_app(context: Context, authenticator: Authenticator, port: int, version: str) -> FastAPI:
    """The app of a daemon that listens on ``port``."""
    app = LoradApp(
        title="lorad",
        version=version,
        description="Trains LoRA adapters on labelled personal examples, on this device.",
        openapi_url=None,  # routes.docs serves it
        docs_url=None,  # FastAPI's page loads scripts from the network
        redoc_url=None,
        lifespan=_few_threads,
        # FastAPI would export traces wherever its environment says; this daemon reports to nobody.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    app.state.context = context
    problems.install(app)
    for public in (page.router, docs.router, models.public, pairing.public):
        app.include_router(public)
    for module in (
        models,
        adapters,
        examples,
        runs,
        restart,
        run_events,
        version_import,
        versions,
        predictions,
        openai,
        pairing,
        clients,
        deletion,
        erasures,
        device,
        schedule,
        pause,
        history,
        metrics,
    ):
        app.include_router(module.router, dependencies=[Security(_BEARER)])
    app.add_middleware(BodyLimit)
    app.add_middleware(Guard, authenticator=authenticator, port=port, penalty=context.penalty)
    app.add_middleware(LastResort)
    app.add_middleware(AccessLog, on_request=context.eraser.note_request, requests=context.requests)
    return app
