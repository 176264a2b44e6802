"""A night of a soak: what is due trains to its end, and something comes in between."""

from __future__ import annotations

import threading
from typing import Any, Literal, get_args

import httpx

from bench.soak_phone import ADAPTERS, SoakPhone

Disturbance = Literal["unplugged", "none", "watched", "hot", "paused", "worker killed"]
DISTURBANCES: tuple[Disturbance, ...] = get_args(Disturbance)
DAEMON_KILLED_EVERY = 200
DAEMON_KILLED_FIRST = 5

_WARM, _HOT = 39.5, 43.5


def spend_night(phone: SoakPhone, night: int, due: list[str]) -> str:
    """Let the adapters train that are due; what came in between."""
    before = {name: _newest_run(phone, name) for name in due}
    disturbance: str = DISTURBANCES[night % len(DISTURBANCES)]
    if night % DAEMON_KILLED_EVERY == DAEMON_KILLED_FIRST:
        disturbance = "daemon killed"
    phone.sensors()
    phone.look()
    run = phone.wait("a run begins", lambda: _running(phone))
    _disturb(phone, disturbance, run["id"], ADAPTERS[run["adapter"]])
    phone.look()
    phone.wait("all that is due is trained", lambda: _all_done(phone, before))
    return disturbance


def _disturb(phone: SoakPhone, disturbance: str, run_id: int, client: str) -> None:
    if disturbance == "unplugged":
        phone.sensors(plugged=False)
        phone.look()
        _wait_until_stopped(phone, run_id, client)
    elif disturbance == "hot":
        phone.sensors(battery_temperature=_WARM)
        phone.look()
        phone.sensors(battery_temperature=_HOT)
        phone.look()
        _wait_until_stopped(phone, run_id, client)
    elif disturbance == "paused":
        phone.ask("PUT", "/v1/pause", json={"until": None})
        _wait_until_stopped(phone, run_id, client)
        phone.ask("DELETE", "/v1/pause")
    elif disturbance == "worker killed":
        phone.kill_worker()
        _wait_until_stopped(phone, run_id, client)
    elif disturbance == "daemon killed":
        phone.kill_daemon()
    elif disturbance == "watched":
        watcher = threading.Thread(target=_watch, args=(phone, run_id, client), daemon=True)
        watcher.start()
        _wait_until_stopped(phone, run_id, client)
        watcher.join()
    phone.sensors()
    for _ in range(12):  # the cool-down after a gate has closed
        phone.look()


def _watch(phone: SoakPhone, run_id: int, client: str) -> None:
    with phone.as_client(client) as http, http.stream("GET", f"/v1/runs/{run_id}/events") as reply:
        try:
            for _ in reply.iter_lines():
                pass
        except httpx.HTTPError:
            return


def _running(phone: SoakPhone) -> dict[str, Any] | None:
    for name, client in ADAPTERS.items():
        run = phone.ask("GET", f"/v1/adapters/{name}", client=client)["current_run"]
        if run is not None and run["status"] == "running":
            return {**run, "adapter": name}
    return None


def _wait_until_stopped(phone: SoakPhone, run_id: int, client: str) -> None:
    def stopped() -> bool:
        status = phone.ask("GET", f"/v1/runs/{run_id}", client=client)["status"]
        return bool(status != "running")

    phone.wait(f"run {run_id} has stopped", stopped)


def _newest_run(phone: SoakPhone, name: str) -> int:
    runs = phone.ask("GET", f"/v1/adapters/{name}/runs", client=ADAPTERS[name])["runs"]
    return max((run["id"] for run in runs), default=0)


def _all_done(phone: SoakPhone, before: dict[str, int]) -> bool:
    for name, newest in before.items():
        runs = phone.ask("GET", f"/v1/adapters/{name}/runs", client=ADAPTERS[name])["runs"]
        new = [run for run in runs if run["id"] > newest]
        if not new or any(run["status"] != "completed" for run in new):
            if any(run["status"] == "interrupted" for run in new):
                phone.look()
            return False
    return True
