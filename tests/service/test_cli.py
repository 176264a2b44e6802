"""The command `lorad`, as a person calls it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.apps import pair
from tests.service.daemon import ROOT, Daemon, add_stand_in_model


def lorad(
    *arguments: str, home: Path, stdin: Path = Path(os.devnull), **environment: str
) -> subprocess.CompletedProcess[str]:
    with stdin.open("rb") as source:
        return subprocess.run(
            [sys.executable, "-m", "service.cli.main", *arguments],
            env=os.environ | {"LORAD_HOME": str(home), "PYTHONPATH": str(ROOT)} | environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=source,
        )


def test_status_and_adapters_of_a_running_daemon(shared: Daemon) -> None:
    answer = lorad("status", "--json", home=shared.home)
    assert answer.returncode == 0, answer.stderr
    status = json.loads(answer.stdout)
    assert [model["name"] for model in status["models"]] == ["tiny"]
    assert "phone" in {adapter["name"] for adapter in status["adapters"]}
    words = lorad("status", home=shared.home).stdout
    assert "phone: not training: it has no training examples yet" in words
    assert f": {status['engine']['why']}\n" in words
    table = lorad("adapters", home=shared.home).stdout
    assert "phone" in table
    assert len(json.loads(lorad("adapters", "--json", home=shared.home).stdout)) >= 3


def test_why_names_the_rule_the_window_and_the_gates(shared: Daemon) -> None:
    answer = lorad("why", "phone", home=shared.home, COLUMNS="200")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("phone: not training (no-examples)\n")
    assert "no window is open; the next one opens on" in answer.stdout
    assert "battery_temperature" in answer.stdout
    with pair(shared, "why-app", "adapters:manage") as app:
        body = {"name": "theirs", "base_model": "tiny"}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
    assert "why-app/theirs: not training:" in lorad("status", home=shared.home).stdout
    found = json.loads(lorad("why", "why-app/theirs", "--json", home=shared.home).stdout)
    assert found["adapter"]["why"]["rule"] == "no-examples"
    assert all(gate["open"] for gate in found["device"]["gates"]), "it had them looked at"
    assert lorad("why", "theirs", home=shared.home).returncode == 4
    assert lorad("why", home=shared.home).returncode == 2


def test_status_goes_through_all_pages(daemon: Daemon) -> None:
    names = [f"adapter-{number:03}" for number in range(201)]
    for name in names:
        daemon.create_adapter(name)
    status = json.loads(lorad("status", "--json", home=daemon.home).stdout)
    assert [adapter["name"] for adapter in status["adapters"]] == names


@pytest.mark.parametrize("command", ["status", "adapters", "why phone"])
def test_without_a_daemon_the_exit_code_is_3(tmp_path: Path, command: str) -> None:
    answer = lorad(*command.split(), home=tmp_path / "home")
    assert answer.returncode == 3
    assert "lorad serve" in answer.stderr


def test_the_token_is_not_sent_to_whoever_has_the_port_of_a_dead_daemon(home: Path) -> None:
    with Daemon(home) as daemon:
        daemon.kill()
        with socket.create_server(("127.0.0.1", daemon.port)) as squatter:
            squatter.settimeout(0)
            answer = lorad("status", home=home)
            assert answer.returncode == 3
            with pytest.raises(BlockingIOError):
                squatter.accept()


def test_one_daemon_per_home(shared: Daemon) -> None:
    answer = lorad("serve", "--port", "0", home=shared.home)
    assert answer.returncode == 1
    assert "another daemon" in answer.stderr
    assert shared.http.get("/healthz").status_code == 200


def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        answer = lorad("serve", "--port", port, home=tmp_path / "home")
    assert answer.returncode == 1
    assert f"port {port}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_database_from_the_future_is_a_clear_error(home: Path) -> None:
    with Daemon(home) as daemon:
        daemon.stop()
    import sqlite3

    connection = sqlite3.connect(home / "lorad.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    answer = lorad("serve", "--port", "0", home=home)
    assert answer.returncode == 1
    assert "schema 999" in answer.stderr


def test_serve_says_where_it_is_and_where_the_token_lies(shared: Daemon) -> None:
    said = shared.log()
    assert f"http://127.0.0.1:{shared.port}" in said
    assert str(shared.home / "token") in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("dance",),
        ("serve", "--colour", "red"),
        ("serve", "--port", "many"),
        ("serve", "--port", "99999"),
        ("serve", "--engine", "steam"),
        ("serve", "--form", "round"),
        ("serve", "--soc", "SM8350"),
        ("serve", "--threads", "0"),
        ("model", "add", "tiny"),
        ("model", "add", "tiny", "source", "--format", "int3"),
    ],
)
def test_a_wrong_command_line_is_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    answer = lorad(*arguments, home=tmp_path / "home")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def test_a_wrong_setting_in_the_environment_is_named(tmp_path: Path) -> None:
    answer = lorad("model", "list", home=tmp_path, LORAD_THREADS="none")
    assert answer.returncode == 2
    assert "LORAD_THREADS" in answer.stderr
    answer = lorad("serve", "--port", "0", home=tmp_path, LORAD_SOC="sm8650")
    assert answer.returncode == 2
    assert "LORAD_SOC: Input should be '', 'SM8550', 'SM8650'" in answer.stderr


def test_exit_codes_are_documented() -> None:
    answer = lorad("--help", home=Path("unused"))
    assert "3 no daemon answers" in " ".join(answer.stdout.split())


def test_models_are_listed_without_a_daemon(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert json.loads(lorad("model", "list", "--json", home=home).stdout) == []
    add_stand_in_model(home)
    add_stand_in_model(home, name="other")
    (home / "models" / "other" / "weights.lorad").write_bytes(b"cut")
    listed = lorad("model", "list", "--json", home=home)
    assert [model["name"] for model in json.loads(listed.stdout)] == ["tiny"]
    assert "other" in listed.stderr
    assert "weights have 3 bytes" in listed.stderr
    assert "sha256:tiny" in lorad("model", "list", home=home, COLUMNS="200").stdout


def test_the_formats_of_a_model_are_listed_and_older_manifests_have_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    add_stand_in_model(home, name="old")
    add_stand_in_model(home, name="new")
    path = home / "models" / "new" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest |= {"format": "native", "formats": {"int4_min": {"matrices": 4}, "int8": {}}}
    manifest |= {"parameters": 16}
    path.write_text(json.dumps(manifest))
    new, old = json.loads(lorad("model", "list", "--json", home=home).stdout)
    assert (new["format"], new["formats"]) == ("native", ["int4_min", "int8"])
    assert new["bytes_per_parameter"] == 0.625
    assert (old["format"], old["formats"]) == ("int8", ["int8"])
    table = lorad("model", "list", home=home, COLUMNS="200").stdout
    assert "native: int4_min, int8" in table
    assert "0.625" in table


def test_adding_what_is_no_model_fails_with_its_reason(tmp_path: Path) -> None:
    source = tmp_path / "broken.gguf"
    source.write_bytes(b"GGUF but not really")
    answer = lorad("model", "add", "broken", str(source), home=tmp_path / "home")
    assert answer.returncode == 1
    assert "broken was not added" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list((tmp_path / "home" / "models").iterdir()) == []


def test_serve_says_where_as_one_line_of_json(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "service.cli.main", "serve", "--json", "--port", "0"],
        env=os.environ | {"LORAD_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        told = json.loads(daemon.stdout.readline())
        assert told["url"] == f"http://127.0.0.1:{told['port']}"
        assert Path(told["token_file"]).read_text().strip()
        assert lorad("status", "--json", home=home).returncode == 0
        daemon.terminate()
        assert daemon.stdout.read() == ""
