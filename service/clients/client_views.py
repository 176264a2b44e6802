"""Rows of clients as the answers of the API."""

import base64
from typing import cast

from sqlmodel import Session

from api_schemas.clients import Client as ClientAnswer
from api_schemas.clients import Credentials, Quotas, Usage
from api_schemas.scopes import Scope
from service.clients.server_key import ServerKeys
from service.views import timestamp
from storage import usage
from storage.clock import now_ms
from storage.tables import Client


def client_answer(session: Session, row: Client) -> ClientAnswer:
    """A client with what it has used of its quotas."""
    used = usage.of_client(session, row.id, now_ms())
    return ClientAnswer(
        name=row.name,
        scopes=cast(list[Scope], row.scopes),
        quotas=Quotas(
            examples_per_day=row.examples_per_day,
            most_bytes=row.most_bytes,
            most_pending=row.most_pending,
        ),
        usage=Usage(examples_today=used.examples_today, bytes=used.bytes, pending=used.pending),
        revoked=row.token_hash is None,
        created_at=timestamp(row.created_at),
        paired_at=timestamp(row.paired_at),
    )


def credentials_answer(row: Client, token: str, keys: ServerKeys) -> Credentials:
    """What a client is told once."""
    return Credentials(
        client=row.name,
        token=token,
        scopes=cast(list[Scope], row.scopes),
        server_key_id=row.key_id,
        server_key=base64.urlsafe_b64encode(keys.of(row.key_id)).decode().rstrip("="),
    )
