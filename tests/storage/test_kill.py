import signal
import subprocess
import sys
from pathlib import Path

from sqlmodel import select

from storage import clients
from storage.database import Database
from storage.tables import Client

WRITER = """
import sys
from pathlib import Path
from storage import clients
from storage.database import Database

database = Database(Path(sys.argv[1]))
number = 0
while True:
    with database.write() as session:
        clients.put(session, f"client-{number}", number.to_bytes(32, "big"))
    print(number, flush=True)  # the 201 of this program: said only after the commit returned
    number += 1
"""


def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """What a commit acknowledged survives a SIGKILL of the process at any later instant.

    SIGKILL proves that nothing waits in the process's own memory. It can't prove that the log
    reached the disk: the kernel keeps a dead process's writes. What stands for that here is
    `synchronous=FULL`, read back from the live writer in test_database.py.
    """
    path = tmp_path / "lorad.db"
    for round_number, lines in enumerate((1, 7, 40)):
        path = tmp_path / f"{round_number}.db"
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        with Database(path) as database, database.read() as session:
            kept = {client.name for client in session.exec(select(Client))}
        assert {f"client-{number}" for number in acknowledged} <= kept
        assert len(kept) - len(acknowledged) in (0, 1)  # committed, killed before saying so


def test_a_kill_inside_a_transaction_leaves_none_of_it(tmp_path: Path) -> None:
    program = WRITER.replace("while True:", "while number < 1:").replace(
        "number += 1",
        "number += 1\nwith database.write() as session:\n"
        "    clients.put(session, 'half', b'h' * 32)\n"
        "    print('inside', flush=True)\n"
        "    import time; time.sleep(60)",
    )
    path = tmp_path / "lorad.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    while writer.stdout.readline() != "inside\n":
        assert writer.poll() is None
    writer.kill()
    writer.wait()
    with Database(path) as database:
        with database.read() as session:
            assert [client.name for client in clients.every(session)] == ["client-0"]
        with database.write() as session:  # the dead writer's lock is gone
            clients.put(session, "next", b"n" * 32)
