"""`lorad backup` of a running daemon and `lorad restore`: everything is there, or nothing is."""

import hashlib
import io
import json
import random
import shutil
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.backup.contents import BackupError, may_hold
from service.backup.reading import restore
from service.backup.writing import write_backup
from service.home import Home
from storage.migrations import SCHEMA_VERSION
from tests.service.apps import App, pair
from tests.service.daemon import Daemon, add_stand_in_model
from tests.service.test_cli import lorad

CANARY = "canary-4410 deleted"


class Stream(threading.Thread):
    """Posts examples one by one until told to stop, and keeps the ids it was given."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self.path = daemon.path("/examples")
        self.http = httpx.Client(
            base_url=daemon.http.base_url, headers=daemon.http.headers, trust_env=False, timeout=30
        )
        self.accepted: list[int] = []
        self.stopping = False

    def run(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            body = {"input": f"streamed {number}", "label": "now", "split": "train"}
            answer = self.http.post(self.path, json=body)
            assert answer.status_code == 201, answer.text
            self.accepted.append(answer.json()["examples"][0]["id"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A backup made under a stream of posts, and what was known before it began."""
    folder = tmp_path_factory.mktemp("backup")
    home = folder / "home"
    add_stand_in_model(home)
    with Daemon(home) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.wait_until_ended(daemon.train())
        daemon.script(steps=1000, step_seconds=0.05)
        app = pair(daemon, "app")
        secret = daemon.http.post(
            daemon.path("/examples"), json={"input": CANARY, "label": "now"}
        ).json()["examples"][0]["id"]
        assert daemon.http.delete(daemon.path(f"/examples/{secret}")).status_code == 200
        unfinished = daemon.train()
        daemon.wait_for(unfinished, lambda run: (run["checkpoint_step"] or 0) >= 5)
        stream = Stream(daemon)
        stream.start()
        while len(stream.accepted) < 20:
            stream.join(0.01)
        before = list(stream.accepted)
        file = folder / "lorad.backup"
        answer = lorad("backup", str(file), "--json", home=home)
        stream.stopping = True
        stream.join()
        assert answer.returncode == 0, answer.stderr
        version = daemon.http.get(daemon.path("/versions/1/download")).content
    yield (
        file,
        {"said": json.loads(answer.stdout), "before": before, "after": stream.accepted}
        | {"version": version, "run": unfinished, "app": app, "home": home},
    )
    app.http.close()


def test_a_restored_home_has_all_that_was_accepted_and_serves(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    file, known = made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []
    assert known["said"]["schema_version"] == SCHEMA_VERSION
    assert CANARY.encode() not in file.read_bytes()
    assert (known["home"] / "token").read_bytes().strip() not in file.read_bytes()

    home = tmp_path / "elsewhere" / "home"
    answer = lorad("restore", str(file), "--json", home=home)
    assert answer.returncode == 0, answer.stderr
    assert not (home / "models" / "tiny").exists(), "a model without weights can't be added again"
    for path in (home, *home.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    add_stand_in_model(home)
    with Daemon(home) as daemon:
        pages = daemon.pages(daemon.path("/examples"), "examples", limit=500)
        there = {one["id"] for page in pages for one in page}
        assert set(known["before"]) <= there
        assert daemon.http.get(daemon.path("/versions/1/download")).content == known["version"]
        daemon.script()
        run = daemon.wait_until_ended(known["run"])
        assert (run["status"], run["resumed_from"]) == ("completed", None)
        assert (home / "token").read_text() != (known["home"] / "token").read_text()
        app: App = known["app"]
        again = httpx.get(
            f"http://127.0.0.1:{daemon.port}/v1/client", headers=app.http.headers, trust_env=False
        )
        assert again.json()["name"] == "app"


def test_the_stream_went_on_while_the_backup_was_made(
    made: tuple[Path, dict[str, Any]],
) -> None:
    _, known = made
    assert len(known["after"]) > len(known["before"])


def test_keys_and_weights_come_along_only_when_asked_for(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    source: Path = made[1]["home"]  # its daemon has ended: that is no hindrance
    file = tmp_path / "all.backup"
    answer = lorad("backup", str(file), "--with-keys", "--with-models", home=source)
    assert answer.returncode == 0, answer.stderr
    home = tmp_path / "home"
    assert lorad("restore", str(file), home=home).returncode == 0
    for name in ("token", "server_key", "models/tiny/weights.lorad", "models/tiny/tokenizer.json"):
        assert (home / name).read_bytes() == (source / name).read_bytes(), name
    with tarfile.open(made[0]) as archive:
        names = set(archive.getnames())
    assert "models/tiny/manifest.json" in names
    assert not {"token", "server_key", "models/tiny/weights.lorad"} & names


def test_a_home_that_is_not_empty_is_moved_aside_only_when_asked(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    file, _ = made
    home = tmp_path / "home"
    add_stand_in_model(home)
    with Daemon(home) as daemon:
        for more in ((), ("--replace",)):
            answer = lorad("restore", str(file), *more, home=home)
            assert answer.returncode == 1
            assert "stop it first" in answer.stderr
        daemon.stop()
    token = (home / "token").read_text()
    answer = lorad("restore", str(file), home=home)
    assert answer.returncode == 1
    assert "--replace" in answer.stderr
    answer = lorad("restore", str(file), "--replace", home=home)
    assert answer.returncode == 0, answer.stderr
    [aside] = tmp_path.glob("home.before-restore-*")
    assert (aside / "token").read_text() == token
    assert not (home / "token").exists()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {home.name, aside.name, "home-daemon.log"}


def remade(file: Path, target: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """The backup with its members changed, and its list and seal made to fit the new list."""
    with tarfile.open(file) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    change(members)
    members["manifest.sha256"] = hashlib.sha256(members["manifest.json"]).hexdigest().encode()
    with tarfile.open(target, "w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return target


def listed(members: dict[str, bytes], **changes: Any) -> None:
    manifest = json.loads(members["manifest.json"]) | changes
    members["manifest.json"] = json.dumps(manifest).encode()


def renamed(members: dict[str, bytes], name: str) -> None:
    manifest = json.loads(members["manifest.json"])
    old = next(one for one in manifest["files"] if one["name"].endswith("version.json"))
    members[name] = members.pop(old["name"])
    members["manifest.sha256"] = members.pop("manifest.sha256")
    old["name"] = name
    members["manifest.json"] = json.dumps(manifest).encode()


CHANGES: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "newer": (lambda one: listed(one, schema_version=999), "schema 999.*up to"),
    "another number": (lambda one: listed(one, schema_version=1), "schema 1, its database"),
    "newer format": (lambda one: listed(one, backup_version=2), "newer lorad"),
    "out of the home": (lambda one: renamed(one, "../evil"), "no backup of a home has"),
    "absolute": (lambda one: renamed(one, "/tmp/evil"), "no backup of a home has"),
    "a version's text": (
        lambda one: one.update(
            {k: v.replace(b"a", b"b") for k, v in one.items() if k.endswith("README.md")}
        ),
        "isn't what was backed up",
    ),
    "one file too few": (
        lambda one: one.pop(next(k for k in one if k.endswith("README.md"))),
        "cut, or damaged",
    ),
    "one file too many": (lambda one: one.update({"token": b"mine"}), "cut, or damaged"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_tampered_with_is_refused_and_nothing_is_left(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, name: str
) -> None:
    change, said = CHANGES[name]
    file = remade(made[0], tmp_path / "changed.backup", change)
    with pytest.raises(BackupError, match=said):
        restore(file, Home.at(tmp_path / "home"), replace=False)
    assert [path.name for path in tmp_path.iterdir()] == ["changed.backup"]


def test_symbolic_links_in_it_are_refused(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "link.backup"
    with tarfile.open(made[0]) as archive, tarfile.open(file, "w") as out:
        for member in archive:
            if member.name.endswith("version.json"):
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0
                out.addfile(member)
            else:
                out.addfile(member, archive.extractfile(member))
    with pytest.raises(BackupError):
        restore(file, Home.at(tmp_path / "home"), replace=False)
    assert not (tmp_path / "home").exists()


def test_cut_anywhere_it_is_refused(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    whole = made[0].read_bytes()
    end = whole.rindex(b"manifest.sha256") + 512 + 64
    file, home = tmp_path / "cut.backup", tmp_path / "home"
    for length in (0, 100, 512, 2000, len(whole) // 3, len(whole) // 2, end - 1):
        file.write_bytes(whole[:length])
        answer = restore_or_none(file, home)
        assert answer is None, length
        assert not home.exists()


def test_a_byte_that_changed_is_refused_or_was_of_no_meaning(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    whole = bytearray(made[0].read_bytes())
    file, home = tmp_path / "flipped.backup", tmp_path / "home"
    restore(made[0], Home.at(home), replace=False)
    wanted = content(home)
    shutil.rmtree(home)
    chance = random.Random(7)
    refused = 0
    for _ in range(40):
        place = chance.randrange(len(whole))
        whole[place] ^= 1 << chance.randrange(8)
        file.write_bytes(whole)
        if restore_or_none(file, home) is None:
            refused += 1
            assert not home.exists()
        else:
            assert content(home) == wanted
            shutil.rmtree(home)
        whole[:] = made[0].read_bytes()
    assert refused > 20


def restore_or_none(file: Path, home: Path) -> Any:
    try:
        return restore(file, Home.at(home), replace=False)
    except BackupError:
        return None


def content(home: Path) -> dict[str, bytes]:
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file()
    }


def test_a_version_that_is_deleted_meanwhile_makes_it_begin_again(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from service.backup import writing
    from storage.snapshot import Snapshot

    home = Home.at(tmp_path / "home")
    restore(made[0], home, replace=False)
    true, calls = writing.take_snapshot, []

    def deleting(source: Path, target: Path) -> Snapshot:
        taken = true(source, target)
        calls.append(taken)
        if len(calls) == 1:
            shutil.rmtree(home.path / taken.versions[0])
            connection = sqlite3.connect(source)
            connection.execute("DELETE FROM versions")
            connection.commit()
            connection.close()
        return taken

    monkeypatch.setattr(writing, "take_snapshot", deleting)
    with (tmp_path / "b").open("w+b") as out:
        manifest = write_backup(home, out, tmp_path, with_models=False, with_keys=False)
    assert [len(one.versions) for one in calls] == [1, 0]
    assert not any(file.name.startswith("adapters/") for file in manifest.files)
    restore(tmp_path / "b", Home.at(tmp_path / "again"), replace=False)
    assert not list((tmp_path / "again").glob("adapters/*/versions/*"))


def test_a_version_whose_files_were_lost_long_ago_is_no_hindrance(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    home = Home.at(tmp_path / "home")
    restore(made[0], home, replace=False)
    shutil.rmtree(next(home.path.glob("adapters/*/versions/*")))
    with (tmp_path / "b").open("w+b") as out:
        manifest = write_backup(home, out, tmp_path, with_models=False, with_keys=False)
    assert not any(file.name.startswith("adapters/") for file in manifest.files)


def test_what_is_no_home_can_not_be_backed_up(tmp_path: Path) -> None:
    answer = lorad("backup", str(tmp_path / "b"), home=tmp_path / "nowhere")
    assert answer.returncode == 1
    assert "found none" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "adapters/1/versions/run-1/../../x", "lorad.db/x", "models/..",
     "models/tiny/a/b", "adapters/1/versions/.x/y", "runs/1/spec.json\n", "models//x", ""],
)  # fmt: skip
def test_no_such_name_is_ever_written(name: str) -> None:
    assert not may_hold(name)
