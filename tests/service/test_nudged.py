"""SIGUSR1, which a phone's heartbeat sends: the daemon looks at once, and it never kills."""

import json
import os
import signal

from tests.service.daemon import Daemon, until
from tests.service.test_gates_live import gates


def test_the_daemon_looks_at_once(own: Daemon) -> None:
    def say(level: int) -> None:
        (own.home / "sensors.new").write_text(json.dumps({"plugged": False, "level": level}))
        (own.home / "sensors.new").replace(own.home / "sensors.json")

    say(60)
    own.train()  # it waits for the charger, and so every look reads the sensors
    until(lambda: gates(own)["level"]["reading"] == 60)
    for level in (61, 62, 63):  # its own looks are half a minute apart: they can't be all three
        say(level)
        os.kill(own.process.pid, signal.SIGUSR1)
        until(lambda level=level: gates(own)["level"]["reading"] == level, 8)
    assert own.stop() == 0
