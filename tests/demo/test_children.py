"""The demo's children end with it, and what they said is told when they fail."""

import os
import signal
import time
from pathlib import Path

import pytest

from service.demo import children
from service.demo.children import ChildError, Household


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose Python files can be run as modules by the children."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "home").mkdir()
    return tmp_path


def household(scripts: Path) -> Household:
    return Household(scripts / "home", scripts)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path.name} never came")


def test_a_child_gets_the_home_and_a_free_port(scripts: Path) -> None:
    (scripts / "says_env.py").write_text(
        "import os, pathlib\n"
        "home = pathlib.Path(os.environ['LORAD_HOME'])\n"
        "(home / 'said').write_text(os.environ['LORAD_PORT'])\n"
    )
    with household(scripts) as house:
        house.run("says", ["says_env"], lambda: None)
    assert (scripts / "home" / "said").read_text() == "0"


def test_a_failing_child_is_told_with_its_code_and_last_words(scripts: Path) -> None:
    (scripts / "fails.py").write_text(
        "import sys\n"
        "for n in range(100): print('line', n)\n"
        "sys.exit('no such model')\n"
    )  # fmt: skip
    with household(scripts) as house, pytest.raises(ChildError) as caught:
        house.run("fails", ["fails"], lambda: None)
    assert "code 1" in str(caught.value)
    assert "no such model" in str(caught.value)
    assert "line 50\n" not in str(caught.value)


def test_leaving_ends_a_child_even_when_it_ignores_the_request(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "STOP_SECONDS", 0.5)
    (scripts / "stubborn.py").write_text(
        "import os, pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path(os.environ['LORAD_HOME'], 'pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )

    def interrupt_once_it_runs() -> None:
        if (scripts / "home" / "pid").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), household(scripts) as house:
        house.run("stubborn", ["stubborn"], interrupt_once_it_runs)
    assert not alive(int(wait_for(scripts / "home" / "pid")))


def test_a_child_is_asked_before_it_is_killed(scripts: Path) -> None:
    (scripts / "polite.py").write_text(
        "import os, pathlib, signal, sys, time\n"
        "home = pathlib.Path(os.environ['LORAD_HOME'])\n"
        "def end(*_):\n"
        "    (home / 'goodbye').write_text('done')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "(home / 'pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )

    def interrupt_once_it_runs() -> None:
        if (scripts / "home" / "pid").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), household(scripts) as house:
        house.run("polite", ["polite"], interrupt_once_it_runs)
    assert (scripts / "home" / "goodbye").read_text() == "done"


def test_ctrl_c_in_the_terminal_does_not_reach_the_children(scripts: Path) -> None:
    (scripts / "session.py").write_text(
        "import os, pathlib\n"
        "pathlib.Path(os.environ['LORAD_HOME'], 'group').write_text(str(os.getpgid(0)))\n"
    )
    with household(scripts) as house:
        house.run("session", ["session"], lambda: None)
    assert int((scripts / "home" / "group").read_text()) != os.getpgid(0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
