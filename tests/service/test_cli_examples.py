"""`lorad examples`: files in and out, twice, broken off, and with lines that can't be kept."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.service.apps import pair
from tests.service.daemon import ROOT, Daemon
from tests.service.test_cli import lorad


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"input": f"message {number}", "label": "now" if number % 3 else "later"}
        for number in range(start, start + count)
    ]


def write(path: Path, examples: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in examples))
    return path


def kept(daemon: Daemon) -> list[tuple[str, str]]:
    found = daemon.pages(daemon.path("/examples"), "examples", limit=500)
    return sorted((one["input"], one["label"]) for page in found for one in page)


def pairs(examples: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((one["input"], one["label"]) for one in examples)


@pytest.fixture
def fresh(shared: Daemon) -> Daemon:
    shared.name = f"import-{random.getrandbits(40)}"
    shared.create_adapter()
    return shared


def test_in_out_and_in_again(fresh: Daemon, tmp_path: Path) -> None:
    given = rows(450)
    given[0] |= {"split": "holdout", "external_id": "first"}
    source = write(tmp_path / "rows.jsonl", given)
    answer = lorad("examples", "import", fresh.name, str(source), "--json", home=fresh.home)
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert told == {"accepted": 450, "accepted_before": 0, "cut": 0, "refused": []}
    assert kept(fresh) == pairs(given)
    again = lorad("examples", "import", fresh.name, str(source), home=fresh.home)
    assert again.stdout.startswith("0 examples are accepted, 450 were accepted before")
    assert len(kept(fresh)) == 450

    out = tmp_path / "out.jsonl"
    answer = lorad("examples", "export", fresh.name, str(out), "--json", home=fresh.home)
    assert json.loads(answer.stdout) == {"examples": 450, "file": str(out)}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    exported = [json.loads(line) for line in out.read_text().splitlines()]
    assert pairs(exported) == pairs(given)
    assert exported[0]["external_id"] == "first"
    assert exported[0]["split"] == "holdout"
    piped = lorad("examples", "export", fresh.name, home=fresh.home).stdout
    assert piped == out.read_text()

    fresh.name = fresh.name + "-copy"
    fresh.create_adapter()
    assert lorad("examples", "import", fresh.name, str(out), home=fresh.home).returncode == 0
    assert kept(fresh) == pairs(given)


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_tables(fresh: Daemon, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    if ending == "tsv":
        lines = ("\ufefflabel\tinput\tsplit\r", 'now\tsay "hi\t\r', "later\ttwo\tholdout", "")
        file.write_text("\n".join(lines), newline="")
        inputs = ['say "hi', "two"]
    else:
        file.write_text('input,label\n"one, and\nmore",now\n\ntwo,later\nthree,never\n')
        inputs = ["one, and\nmore", "two"]
    answer = lorad("examples", "import", fresh.name, str(file), home=fresh.home)
    assert [text for text, _ in kept(fresh)] == sorted(inputs)
    if ending == "csv":
        assert answer.returncode == 1
        assert "line 6: label must be one of the adapter's labels" in answer.stderr
    else:
        assert answer.returncode == 0, answer.stderr
        assert fresh.adapter()["examples"]["holdout"] >= 1


def test_refused_lines_are_named_by_their_place_in_the_file_and_never_quoted(
    fresh: Daemon, tmp_path: Path
) -> None:
    canary = "canary-7731"
    given: list[dict[str, Any]] = rows(300)
    given[40] = {"input": canary, "label": "perhaps"}
    given[250] = {"input": canary + "\0", "label": "now"}
    source = write(tmp_path / "rows.jsonl", given)
    text = source.read_text().splitlines()
    text[10] = f'{{"input": "{canary}'
    text[60] = f'["{canary}"]'
    source.write_text("\n".join(text))
    answer = lorad("examples", "import", fresh.name, "-", home=fresh.home, stdin=source)
    assert answer.returncode == 1
    assert answer.stdout.startswith("296 examples are accepted, 4 lines are refused")
    lines = [line.partition(":")[0] for line in answer.stderr.splitlines()]
    assert lines == ["line 11", "line 41", "line 61", "line 251"]
    assert canary not in answer.stderr + answer.stdout
    wanted = [one for number, one in enumerate(given) if number not in (10, 40, 60, 250)]
    assert kept(fresh) == pairs(wanted)


def test_killed_midway_and_repeated_everything_is_there_once(fresh: Daemon, tmp_path: Path) -> None:
    given = rows(3000)
    source = write(tmp_path / "rows.jsonl", given)
    command = [sys.executable, "-m", "service.cli.main", "examples", "import", fresh.name]
    child = subprocess.Popen(
        [*command, str(source)],
        env=os.environ | {"LORAD_HOME": str(fresh.home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not fresh.adapter()["examples"]["pending"]:
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    some = len(kept(fresh))
    assert 0 < some < 3000
    answer = lorad("examples", "import", fresh.name, str(source), "--json", home=fresh.home)
    told = json.loads(answer.stdout)
    assert told["accepted_before"] >= some - 200
    assert told["accepted"] + told["accepted_before"] == 3000
    assert kept(fresh) == pairs(given)


def test_an_app_s_adapter_and_one_that_is_not_there(shared: Daemon, tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", rows(3))
    with pair(shared, "import-app", "adapters:manage") as app:
        app.http.post("/v1/adapters", json={"name": "theirs", "base_model": "tiny"})
    answer = lorad("examples", "import", "import-app/theirs", str(source), home=shared.home)
    assert answer.returncode == 0, answer.stderr
    piped = lorad("examples", "export", "import-app/theirs", "--json", home=shared.home)
    assert len(json.loads(piped.stdout)["examples"]) == 3
    assert lorad("examples", "import", "nobody", str(source), home=shared.home).returncode == 4
    missing = lorad("examples", "import", "phone", str(tmp_path / "no"), home=shared.home)
    assert missing.returncode == 1
    assert "No such file" in missing.stderr
    (tmp_path / "x.tsv").write_text("text\tlabel\na\tnow\n")
    headless = lorad("examples", "import", "phone", str(tmp_path / "x.tsv"), home=shared.home)
    assert headless.returncode == 1
    assert "no input" in headless.stderr
