"""What goes on around a daemon by day: apps post, correct, delete, ask, read and hang up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

from bench.service_daemon import ROOT
from bench.service_load import BenchError
from bench.service_rows import LABELS
from bench.soak_phone import ADAPTERS, MOST_PENDING, SoakPhone

NEW = 24
"""Training examples that an adapter gets a day on which it gets any; due is one with 20."""
HELD_OUT = 12

_PAGES = (
    *("/", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/models", "/v1/adapters"),
    *("/v1/history?limit=100", "/v1/device", "/v1/schedule", "/v1/clients"),
)
_TWO_EVERY = 4
_ASKED_EVERY = 2
_BACKUP_EVERY = 10
_IMPORT_EVERY = 4
_PASSING_EVERY = 3


def spend_day(phone: SoakPhone, night: int) -> list[str]:
    """All of it; which adapters are due for training in the night that follows."""
    names = list(ADAPTERS)
    due = [names[night % len(names)]]
    if night % _TWO_EVERY == 0:
        due.append(names[(night + 1) % len(names)])
    for name in due:
        _post(phone, name)
    for name in ADAPTERS:
        _read(phone, name)
    _activate(phone, due[0])
    for path in _PAGES:
        phone.ask("GET", path)
    if night % _ASKED_EVERY == 0:
        _predict(phone, due[0])
        _hang_up(phone, due[0])
    _be_refused(phone)
    if night % _PASSING_EVERY == 0:
        _come_and_go(phone)
    if night % _IMPORT_EVERY == 0:
        _import(phone, due[0])
    if night % _BACKUP_EVERY == 0:
        _back_up(phone)
    return due


def _post(phone: SoakPhone, name: str) -> None:
    """New ones twice under one key, one by one and as lines; one is corrected, one deleted."""
    client, path = ADAPTERS[name], f"/v1/adapters/{name}/examples"
    rows = phone.rows(NEW - 2, "train") + phone.rows(HELD_OUT, "holdout")
    key = {"Idempotency-Key": f"key-{next(phone.numbers)}"}
    for _ in range(2):
        given = phone.ask("POST", path, 201, client=client, json={"examples": rows}, headers=key)
    phone.ask("POST", path, 201, client=client, json=phone.rows(1, "train")[0])
    lines = "".join(json.dumps(row) + "\n" for row in phone.rows(2, "train"))
    ndjson = {"Content-Type": "application/x-ndjson"}
    phone.ask("POST", path, 201, client=client, content=lines, headers=ndjson)
    corrected = rows[0] | {"label": LABELS[0] if rows[0]["label"] != LABELS[0] else LABELS[1]}
    phone.ask("POST", path, 201, client=client, json=corrected)
    phone.ask("DELETE", f"{path}/{given['examples'][1]['id']}", client=client)


def _read(phone: SoakPhone, name: str) -> None:
    client, path = ADAPTERS[name], f"/v1/adapters/{name}"
    phone.ask("GET", path, client=client)
    phone.ask("GET", f"{path}/examples?limit=50", client=client)
    phone.ask("GET", f"{path}/runs", client=client)
    for version in phone.ask("GET", f"{path}/versions", client=client)["versions"]:
        phone.ask("GET", f"{path}/versions/{version['number']}", client=client)
        for kind in ("peft", "gguf"):
            place = f"{path}/versions/{version['number']}/download?format={kind}"
            phone.ask("GET", place, client=client)


def _activate(phone: SoakPhone, name: str) -> None:
    """The newest: the active one stays whatever its age, and so does its run."""
    client, path = ADAPTERS[name], f"/v1/adapters/{name}/versions"
    for version in phone.ask("GET", path, client=client)["versions"][:1]:
        phone.ask("POST", f"{path}/{version['number']}/activate", client=client)


def _predict(phone: SoakPhone, name: str) -> None:
    body: dict[str, Any] = {"inputs": ["Mum: ring me", "50 % off today"], "prior": True}
    path = f"/v1/adapters/{name}/predict"
    phone.ask("POST", path, client=ADAPTERS[name], json=body)


def _hang_up(phone: SoakPhone, name: str) -> None:
    """A stream of text, one of events and a body, none of which is waited for to its end."""
    body = {
        "model": name,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 200,
        "stream": True,
    }
    client = ADAPTERS[name]
    with (
        phone.as_client(client) as http,
        http.stream("POST", "/v1/chat/completions", json=body) as reply,
    ):
        if reply.status_code != 200:
            raise BenchError(f"POST /v1/chat/completions: {reply.status_code} {reply.read()!r}")
        next(reply.iter_lines())
    runs = phone.ask("GET", f"/v1/adapters/{name}/runs", client=client)["runs"]
    for run in runs[:1]:
        with (
            phone.as_client(client) as http,
            http.stream("GET", f"/v1/runs/{run['id']}/events") as reply,
        ):
            next(reply.iter_lines())
    with socket.create_connection(("127.0.0.1", phone.daemon.port)) as half:
        head = f"POST /v1/adapters HTTP/1.1\r\nHost: 127.0.0.1:{phone.daemon.port}\r\n"
        half.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())


def _be_refused(phone: SoakPhone) -> None:
    """More than fits into the queue, a body that is none, an adapter that isn't there."""
    rows = phone.rows(MOST_PENDING + 1, "train")
    path = "/v1/adapters/mail/examples"
    phone.ask("POST", path, 422, 429, client="mail", json={"examples": rows[:500]})
    phone.ask("POST", path, 422, client="mail", json={"input": 7})
    phone.ask("GET", "/v1/adapters/nobody", 404)


def _come_and_go(phone: SoakPhone) -> None:
    """An app that is paired, hands something in and is deleted with all that it had."""
    phone.pair("guest")
    phone.create_adapter("guest", "guest")
    rows = phone.rows(3, "train")
    phone.ask("POST", "/v1/adapters/guest/examples", 201, client="guest", json={"examples": rows})
    phone.ask("DELETE", "/v1/clients/guest")


def _import(phone: SoakPhone, name: str) -> None:
    client, path = ADAPTERS[name], f"/v1/adapters/{name}/versions"
    versions = phone.ask("GET", path, client=client)["versions"]
    if versions:
        number = versions[0]["number"]
        packed = phone.ask("GET", f"{path}/{number}/download?format=peft", client=client)
        zipped = {"Content-Type": "application/zip"}
        phone.ask("POST", f"{path}/import", 200, 201, client=client, content=packed, headers=zipped)


def _back_up(phone: SoakPhone) -> None:
    file = phone.home.with_name("backup.tar")
    command = [sys.executable, "-P", "-m", "service.cli.main", "backup", str(file)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(phone.tmp)}
    done = subprocess.run(
        [*command, "--home", str(phone.home)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"lorad backup ended with {done.returncode}: {done.stderr}")
    file.unlink()
