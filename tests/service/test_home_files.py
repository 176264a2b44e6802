import stat
import subprocess
import sys
from pathlib import Path

import pytest

from service.clients.auth import Authenticator, owner_token, token_hash
from service.durable import write_durably
from service.home import Home
from service.locks import FileLock, is_held
from service.secret_file import SecretFileError
from storage.tables import Client
from tests.service.daemon import Daemon

HOLD = """
import sys, time
from pathlib import Path
from service.locks import FileLock
assert FileLock.take(Path(sys.argv[1])) is not None
print("held", flush=True)
time.sleep(60)
"""


def test_a_token_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = owner_token(path)
    assert owner_token(path) == token
    assert len(token) == 43  # 32 bytes in base64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert owner_token(tmp_path / "other") != token


def test_a_token_file_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    owner_token(path)
    path.chmod(0o644)
    owner_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "\n", "short", "x" * 31, "é" * 40, "a\x00" * 30])
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(SecretFileError, match="delete it"):
        owner_token(path)


def test_each_token_finds_its_client() -> None:
    clients = [
        Client(id=number, name=name, token_hash=token_hash(name.encode()))
        for number, name in enumerate(("first", "second", "third"), start=1)
    ]
    authenticator = Authenticator(clients)
    for client in clients:
        caller = authenticator.caller(f"Bearer {client.name}".encode())
        assert caller is not None
        assert (caller.id, caller.name) == (client.id, client.name)
    assert authenticator.caller(b"bearer second") is not None  # the scheme's case is free
    for header in (None, b"", b"Bearer", b"Bearer fourth", b"Token first", b"first"):
        assert authenticator.caller(header) is None


def test_the_kernel_gives_a_dead_holders_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert is_held(path)
    assert FileLock.take(path) is None
    holder.kill()
    holder.wait()
    assert not is_held(path)
    lock = FileLock.take(path)
    assert lock is not None
    lock.release()


def test_the_home_is_private(shared: Daemon) -> None:
    files = [shared.home, *shared.home.rglob("*")]
    ours = [file for file in files if not file.is_relative_to(shared.home / "models")]
    assert len(ours) > 5
    for file in ours:
        assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file


def test_a_loose_home_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    Home.at(path).create()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
