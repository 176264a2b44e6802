"""A real daemon on a phone that warms up: its worker is told its duty, and stopped in the end."""

import json

from service.gates.limits import Limits
from tests.service.daemon import Daemon, until

HALF = 39.8125
"""In °C, of a battery: half of the way from soft to the last quarter before the pause."""
HALF_THE_DUTY = (1 + Limits().duty_least) / 2


def warm(daemon: Daemon, **temperatures: float) -> None:
    """The phone has these temperatures, and the daemon has a reason to look."""
    new = daemon.home / "sensors.new"
    new.write_text(json.dumps(temperatures))
    new.rename(daemon.home / "sensors.json")
    schedule = daemon.http.get("/v1/schedule").json()
    answer = daemon.http.put(
        "/v1/schedule", json={"windows": schedule["windows"]}, headers={"If-Match": "*"}
    )
    assert answer.status_code == 200


def told(daemon: Daemon, run_id: int) -> list[float]:
    """The duties that the run's worker was told."""
    log = (daemon.home / f"runs/{run_id}/worker.log").read_text().splitlines()
    return [float(line.split()[1]) for line in log if line.startswith("duty ")]


def test_the_worker_is_told_its_duty_and_stopped_at_the_pause(own: Daemon) -> None:
    own.script(steps=100_000, step_seconds=0.01)
    own.post_examples()
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 1)
    warm(own, battery_temperature=HALF)
    until(lambda: told(own, run_id)[-1:] == [round(HALF_THE_DUTY, 3)])
    warm(own, battery_temperature=20.0, skin_temperature=42.3)
    until(lambda: told(own, run_id)[-1:] == [Limits().duty_least])
    warm(own, battery_temperature=42.0)
    stopped = own.wait_for(run_id, lambda run: run["status"] == "interrupted")
    assert "42 °C" in stopped["error"]
