"""The part of a stranger's app: everything it does goes over HTTP with a token.

It creates an adapter, posts labelled texts, asks for a run, watches it, and reads the version that
comes out. It knows of the daemon what the API tells and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from service.demo.rows import Row

BATCH = 50
POLL_SECONDS = 0.5
REQUEST_SECONDS = 60
INTERRUPTIONS = 3
"""How often a run may be interrupted, and go on by itself, before that counts as a failure."""
STALL_SECONDS = 900
"""A run whose status says the same for so long has come to a stop (an emulator's step is slow)."""
ADAPTER = "notifications"


class PlayError(RuntimeError):
    """The daemon refused a request or the run didn't end well; the message says what it said."""


class RunError(PlayError):
    """The run ended without a version."""

    def __init__(self, message: str, run_id: int) -> None:
        """Keep the run's id beside the message, for finding its log."""
        super().__init__(message)
        self.run_id = run_id


@dataclass(frozen=True)
class Outcome:
    """What the daemon said when all was done."""

    run: Mapping[str, Any]
    version: Mapping[str, Any]
    """With `holdout_rows`."""
    base_predictions: list[str | None]
    """One a held-out row, in the order in which the rows were posted."""
    adapter_predictions: list[str | None]
    archive: bytes
    """The PEFT folder as a zip file."""
    cut_tokens: int
    """Tokens that the daemon cut from inputs too long for the model."""


class Player:
    """One app talking to one daemon."""

    def __init__(self, base_url: str, token: str, transport: httpx.BaseTransport | None = None):
        """Connect to a daemon; `transport` replaces the network in tests."""
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=REQUEST_SECONDS,
            trust_env=False,
            transport=transport,
        )

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()

    def create_adapter(
        self, model: str, labels: Sequence[str], training: Mapping[str, Any]
    ) -> None:
        """Declare the adapter, its labels and how it is to be trained."""
        self._call(
            "POST",
            "/v1/adapters",
            json={
                "name": ADAPTER,
                "base_model": model,
                "labels": list(labels),
                "too_long": "cut",
                "training": dict(training),
                "night": {"train": False},
            },
        )

    def post_examples(
        self, rows: Sequence[Row], posted: Callable[[int], None]
    ) -> tuple[list[int], int]:
        """Hand the rows over in batches and in their order.

        Returns:
            The id of each row, and how many tokens were cut from inputs that were too long.
        """
        ids: list[int] = []
        cut = 0
        for start in range(0, len(rows), BATCH):
            batch = [
                {"input": row.input, "label": row.label, "split": row.split}
                for row in rows[start : start + BATCH]
            ]
            answer = self._call(
                "POST", f"/v1/adapters/{ADAPTER}/examples", json={"examples": batch}
            )
            ids += [entry["id"] for entry in answer["examples"]]
            cut += sum(entry["cut_tokens"] for entry in answer["examples"])
            posted(len(ids))
        return ids, cut

    def train(self, watch: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        """Ask for a run and wait for its end; `watch` sees its status twice a second.

        Raises:
            RunError: it failed, stood still, or was interrupted again and again.
        """
        run = self._call("POST", f"/v1/adapters/{ADAPTER}/runs", json={})
        interruptions = 0
        seen: tuple[Any, ...] = ()
        changed = time.monotonic()
        while run["status"] != "completed":
            if run["status"] == "failed":
                raise RunError(f"run {run['id']} failed: {run['error']}", run["id"])
            state = (run["status"], run["phase"], run["step"], run["evaluated"])
            if state != seen:
                interruptions += run["status"] == "interrupted"
                seen, changed = state, time.monotonic()
            elif time.monotonic() - changed > STALL_SECONDS:
                why = self._call("GET", f"/v1/adapters/{ADAPTER}")["not_training_because"]
                raise RunError(f"run {run['id']} stands still in {state}: {why}", run["id"])
            if interruptions > INTERRUPTIONS:
                raise RunError(
                    f"run {run['id']} was interrupted {interruptions} times: {run['error']}",
                    run["id"],
                )
            time.sleep(POLL_SECONDS)
            run = self._call("GET", f"/v1/runs/{run['id']}")
            watch(run)
        return run

    def collect(
        self, run: Mapping[str, Any], rows: Sequence[Row], ids: Sequence[int], cut_tokens: int
    ) -> Outcome:
        """Read the version that a run made, its predictions row by row, and the adapter itself."""
        path = f"/v1/adapters/{ADAPTER}/versions/{run['version']}"
        version = self._call("GET", path)
        measured = {row["example_id"]: row for row in version["holdout_rows"]}
        holdout = [
            measured.get(example_id, {})
            for example_id, row in zip(ids, rows, strict=True)
            if row.split == "holdout"
        ]
        archive = self._request("GET", f"{path}/download", params={"format": "peft"})
        return Outcome(
            run=run,
            version=version,
            base_predictions=[row.get("before", {}).get("predicted") for row in holdout],
            adapter_predictions=[row.get("after", {}).get("predicted") for row in holdout],
            archive=archive.content,
            cut_tokens=cut_tokens,
        )

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._request(method, path, **options).json()
        return answer

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise PlayError(f"{method} {path}: no answer from the daemon ({error})") from error
        if response.is_error:
            raise PlayError(f"{method} {path}: {_problem(response)}")
        return response


def _problem(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    said = body.get("detail") or body.get("title") or "no reason given"
    fields = "".join(
        f"\n  {entry.get('field')}: {entry.get('message')}" for entry in body.get("errors") or []
    )
    return f"{response.status_code}, {said}{fields}"
