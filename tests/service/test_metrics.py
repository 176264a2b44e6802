"""GET /metrics, read by Prometheus's own parser."""

import math
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from service.metrics.exposition import Exposition
from service.metrics.requests import BOUNDS, RequestCounts
from tests.service.apps import pair
from tests.service.daemon import Daemon

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """Every sample by name and labels; each family once, each sample once."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    found: Samples = {}
    for family in families:
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def ask(daemon: Daemon) -> Samples:
    response = daemon.http.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parsed(response.text)


def test_what_there_is_is_counted(own: Daemon) -> None:
    before = ask(own)
    assert value(before, "lorad_runs", status="completed") == 0
    with pytest.raises(KeyError):
        value(before, "lorad_run_step")
    own.wait_until_ended(own.train())
    found = ask(own)
    adapter = {"adapter": "1"}
    assert value(found, "lorad_examples", **adapter, split="train", status="used") == 10
    assert value(found, "lorad_examples", **adapter, split="holdout", status="pending") == 40
    assert value(found, "lorad_runs", status="completed") == 1
    assert value(found, "lorad_versions", verdict="promoted") == 1
    assert value(found, "lorad_training_steps_total") == 12
    assert value(found, "lorad_gate_open", gate="charging") == 1
    assert value(found, "lorad_battery_temperature_celsius") == 25
    assert 0 <= value(found, "lorad_reading_age_seconds", sensor="level") < 60
    assert value(found, "lorad_window_open") == 0
    assert value(found, "lorad_next_window_timestamp_seconds") > 1.7e9
    assert value(found, "lorad_paused") == 0
    assert value(found, "lorad_database_bytes") == (own.home / "lorad.db").stat().st_size
    assert 2e7 < value(found, "process_resident_memory_bytes") < 2e8
    files = len(list(Path(f"/proc/{own.process.pid}/fd").iterdir()))
    assert abs(value(found, "process_open_fds") - files) <= 3
    posted = {"method": "POST", "route": "/v1/adapters/{name}/examples"}
    assert value(found, "lorad_http_requests_total", **posted, status="201") == 1
    name = "lorad_http_request_duration_seconds"
    assert value(found, f"{name}_bucket", **posted, le="+Inf") == 1
    assert value(found, f"{name}_count", **posted) == 1
    assert 0 < value(found, f"{name}_sum", **posted) < 60
    own.http.put("/v1/pause", json={"until": None}, headers={"If-Match": "*"})
    assert value(ask(own), "lorad_paused") == 1


def test_the_run_that_is_being_trained_is_told_while_it_is(own: Daemon) -> None:
    own.script(steps=1000, step_seconds=0.05)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] > 3)
    found = ask(own)
    assert value(found, "lorad_run_step", adapter="1") > 3
    assert value(found, "lorad_run_steps", adapter="1") == 1000
    assert value(found, "lorad_run_loss", adapter="1") > 0
    assert value(found, "lorad_engine_info", requested="auto", engine="stand_in") == 1
    own.steer(run_id, "cancel")


def test_only_a_token_with_its_scope_reads_them_and_no_name_is_in_them(shared: Daemon) -> None:
    with pair(shared, "canary-client", "status:read", "adapters:manage") as app:
        app.http.post("/v1/adapters", json={"name": "canary-adapter", "base_model": "tiny"})
        assert app.http.get("/metrics").status_code == 403
    with pair(shared, "watcher", "metrics:read") as watcher:
        text = watcher.http.get("/metrics").text
        assert watcher.http.get("/v1/adapters").status_code == 403
    parsed(text)
    assert "canary" not in text
    assert "phone" not in text
    url = f"http://127.0.0.1:{shared.port}/metrics"
    assert httpx.get(url, trust_env=False).status_code == 401


@given(
    st.lists(
        st.tuples(st.text(), st.text(), st.floats(allow_nan=False) | st.integers(0, 2**60)),
        min_size=1,
        unique_by=lambda one: one[0],
    ),
    st.text(min_size=1),
)
def test_whatever_the_labels_are_the_parser_reads_them_back(
    samples: list[tuple[str, str, float]], meaning: str
) -> None:
    page = Exposition()
    page.family("lorad_x", "gauge", meaning)
    for first, second, number in samples:
        page.sample("lorad_x", number, first=first, second=second)
    found = parsed(page.text()) if meaning.strip() else {}
    for first, second, number in samples if found else []:
        assert math.isclose(value(found, "lorad_x", first=first, second=second), number)


def test_a_duration_is_in_the_first_bucket_that_holds_it() -> None:
    counts = RequestCounts()
    for seconds in (*BOUNDS, 0.0, 11.0):
        counts.count("GET", "/x", 200, seconds)
    page = Exposition()
    counts.write(page)
    found = parsed(page.text())
    name, labels = "lorad_http_request_duration_seconds", {"method": "GET", "route": "/x"}
    buckets = [value(found, f"{name}_bucket", **labels, le=str(bound)) for bound in BOUNDS]
    assert buckets == list(range(2, len(BOUNDS) + 2))
    assert value(found, f"{name}_bucket", **labels, le="+Inf") == len(BOUNDS) + 2
    assert math.isclose(value(found, f"{name}_sum", **labels), sum(BOUNDS) + 11)
