"""`lorad train`, `watch`, `versions` and `export`, with a worker that trains nothing."""

import json
import os
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.service.apps import pair
from tests.service.daemon import ROOT, Daemon
from tests.service.test_cli import lorad

COMMAND = [sys.executable, "-m", "service.cli.main"]


def test_train_watch_versions_and_export(ready: Daemon, tmp_path: Path) -> None:
    ready.script(step_seconds=0.05)
    name, home = ready.name, ready.home
    answer = lorad("train", name, "--steps", "12", "--seed", "7", "--watch", home=home)
    assert answer.returncode == 0, answer.stderr
    assert "is completed: version 1" in answer.stdout
    assert "promoted:" in answer.stdout
    assert "the base model: 30.0 % right" in answer.stdout
    assert "with this adapter: 90.0 % right" in answer.stdout
    assert "step 12/12" in answer.stderr
    assert "25.0 °C" in answer.stderr
    assert "\x1b" not in answer.stderr + answer.stdout
    run = json.loads(lorad("watch", name, "--json", home=home).stdout)
    assert (run["status"], run["step"], run["version"]) == ("completed", 12, 1)
    assert ready.spec(run["id"])["training"]["seed"] == 7

    listed = json.loads(lorad("versions", name, "--json", home=home).stdout)["versions"]
    assert [one["number"] for one in listed] == [1]
    assert "90.0 %" in lorad("versions", name, home=home).stdout
    assert "promoted" in lorad("versions", name, "1", home=home).stdout
    file = tmp_path / "adapter.zip"
    taken = lorad("export", name, str(file), "--json", home=home)
    assert json.loads(taken.stdout)["bytes"] == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == ready.http.get(ready.path("/versions/1/download")).content
    assert "adapter_config.json" in zipfile.ZipFile(file).namelist()

    unknown = lorad("export", name, str(tmp_path / "no.zip"), "--version", "9", home=home)
    assert unknown.returncode == 4
    assert not (tmp_path / "no.zip").exists()
    off = lorad("versions", name, "--deactivate", "1", "--json", home=home)
    assert json.loads(off.stdout)["active"] is False
    assert ready.adapter()["active_version"] is None
    assert lorad("versions", name, "--activate", "1", home=home).returncode == 0
    assert ready.adapter()["active_version"]["number"] == 1
    assert lorad("versions", name, "--activate", "1", "--delete", "1", home=home).returncode == 2
    active = lorad("versions", name, "--delete", "1", home=home)
    assert (active.returncode, "is active" in active.stderr) == (4, True)
    assert lorad("versions", name, "--deactivate", "1", home=home).returncode == 0
    gone = lorad("versions", name, "--delete", "1", home=home)
    assert gone.returncode == 0, gone.stderr
    assert json.loads(lorad("versions", name, "--json", home=home).stdout)["versions"] == []
    none = lorad("export", name, str(tmp_path / "no.zip"), home=home)
    assert none.returncode == 4
    assert "no active version" in none.stderr


def test_a_window_and_an_override_reach_the_run(ready: Daemon) -> None:
    answer = lorad("train", ready.name, "--window", "--override", "--json", home=ready.home)
    run = json.loads(answer.stdout)
    assert (run["when"], run["override"]) == ("window", True)
    again = lorad("train", ready.name, home=ready.home)
    assert again.returncode == 4
    assert "refused" in again.stderr
    assert ready.steer(run["id"], "cancel").status_code in (200, 202)
    ended = lorad("watch", str(run["id"]), home=ready.home)
    assert ended.returncode == 1
    assert "is cancelled" in ended.stdout


def watching(home: Path, what: str) -> subprocess.Popen[str]:
    """`lorad watch` in a process of its own, which has told of a step."""
    watcher = subprocess.Popen(
        [*COMMAND, "watch", what],
        env=os.environ | {"LORAD_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stderr is not None
    while "step" not in watcher.stderr.readline():
        assert watcher.poll() is None
    return watcher


def test_ctrl_c_leaves_the_run_alone_and_says_so(ready: Daemon) -> None:
    ready.script(steps=1000, step_seconds=0.05)
    run_id = ready.train()
    ready.wait_for(run_id, lambda run: run["step"] > 2)
    watcher = watching(ready.home, ready.name)
    watcher.send_signal(signal.SIGINT)
    _, rest = watcher.communicate(timeout=10)
    assert watcher.returncode == 130
    assert f"run {run_id} goes on" in rest
    assert "Traceback" not in rest
    step = ready.run(run_id)["step"]
    ready.wait_for(run_id, lambda run: run["step"] > step)
    ready.steer(run_id, "cancel")
    ready.wait_until_ended(run_id)


def test_watching_survives_a_daemon_that_is_started_anew(own: Daemon) -> None:
    own.script(steps=100, step_seconds=0.05)
    run_id = own.train()
    watcher = watching(own.home, str(run_id))
    own.stop()
    own.start()
    out, said = watcher.communicate(timeout=60)
    assert watcher.returncode == 0, said
    assert "is completed: version 1" in out
    assert "step 100/100" in said


def test_adapters_are_created_shown_and_deleted(shared: Daemon) -> None:
    home = shared.home
    labels = ("--label", "now", "--label", "not now")
    made = lorad("adapters", "create", "made", "--model", "tiny", *labels, home=home)
    assert made.returncode == 0, made.stderr
    found = json.loads(lorad("adapters", "show", "made", "--json", home=home).stdout)
    assert found["labels"] == ["now", "not now"]
    assert "now, not now" in lorad("adapters", "show", "made", home=home).stdout
    assert lorad("adapters", "create", "made", "--model", "tiny", home=home).returncode == 4
    assert lorad("adapters", "delete", "made", home=home).returncode == 1, "it asks first"
    assert lorad("adapters", "delete", "made", "--yes", home=home).returncode == 0
    assert lorad("adapters", "show", "made", home=home).returncode == 4
    with pair(shared, "other-app", "adapters:manage"):
        pass
    made = lorad("adapters", "create", "other-app/theirs", "--model", "tiny", home=home)
    assert made.returncode == 0, made.stderr
    everyone = json.loads(lorad("adapters", "list", "--everyone", "--json", home=home).stdout)
    assert ("other-app", "theirs") in {(one["client"], one["name"]) for one in everyone}
    owner = json.loads(lorad("adapters", "--json", home=home).stdout)
    assert {one["client"] for one in owner} == {"owner"}


def test_the_shell_completes_names_of_adapters(shared: Daemon) -> None:
    def complete(words: str) -> list[str]:
        environment = {"_LORAD_COMPLETE": "complete_bash", "COMP_WORDS": words}
        environment |= {"COMP_CWORD": str(len(words.split(" ")) - 1)}
        environment |= {"LORAD_HOME": str(shared.home), "PYTHONPATH": str(ROOT)}
        program = "import sys; sys.argv[0] = 'lorad'; from service.cli.main import main; main()"
        child = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return child.stdout.split()

    assert complete("lorad why ph") == ["phone"]
    assert complete("lorad why no-such") == []
    assert "adapters" in complete("lorad ad")


def test_narrow_terminals_colour_and_pipes(shared: Daemon) -> None:
    narrow = lorad("adapters", home=shared.home, COLUMNS="40").stdout
    assert all(len(line) <= 40 for line in narrow.splitlines())
    assert "  base model: tiny" in narrow
    piped = lorad("why", "phone", home=shared.home).stdout
    assert "battery_temperature" in piped
    assert "…" not in piped
    forced = lorad("adapters", home=shared.home, FORCE_COLOR="1").stdout
    plain = lorad("adapters", home=shared.home, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[" in forced
    assert "\x1b[3" not in plain


def test_predict_asks_for_labels_of_texts_and_of_lines(shared: Daemon, tmp_path: Path) -> None:
    home = shared.home
    one = lorad("predict", "phone", "later please", "now please", home=home)
    assert one.returncode == 0, one.stderr
    assert one.stdout == "later\t70.0 %\nnow\t70.0 %\n"
    file = tmp_path / "lines"
    wanted = ["later" if number % 3 else "now" for number in range(150)]
    file.write_text("".join(f"line {number}: {w}\n\n" for number, w in enumerate(wanted)))
    many = json.loads(lorad("predict", "phone", "-", "--json", home=home, stdin=file).stdout)
    assert [answer["label"] for answer in many["predictions"]] == wanted
    assert many["version"] is None
    free = lorad("predict", "free", "say something", "--max-tokens", "3", home=home)
    assert free.returncode == 0, free.stderr
    assert free.stdout.strip()
    assert lorad("predict", "phone", "x", "--max-tokens", "3", home=home).returncode == 4
    assert lorad("predict", "phone", "-", home=home).returncode == 2
