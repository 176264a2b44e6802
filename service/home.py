"""The home folder: where each thing lies."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """A home folder by its path; `create` makes it, private to its user."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "Home":
        """The home at a path that may begin with ``~`` or be relative."""
        return cls(path.expanduser().absolute())

    def create(self) -> None:
        """Make the folder if needed, and keep everybody else out of it."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        for folder in (self.models, self.runs, self.adapters):
            folder.mkdir(mode=0o700, exist_ok=True)

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.path / "lorad.db"

    @property
    def token(self) -> Path:
        """The owner's bearer token."""
        return self.path / "token"

    @property
    def server_key(self) -> Path:
        """The key from which the keys come that prove the daemon to its clients."""
        return self.path / "server_key"

    @property
    def daemon_file(self) -> Path:
        """Port, socket, process and start of the daemon that serves this home now."""
        return self.path / "daemon.json"

    @property
    def socket(self) -> Path:
        """The Unix socket of the daemon, unless LORAD_SOCKET names another."""
        return self.path / "lorad.sock"

    @property
    def phone_file(self) -> Path:
        """What the daemon has set up on the phone and not taken back: wake lock, notification."""
        return self.path / "phone.json"

    @property
    def daemon_lock(self) -> Path:
        """Held by the one daemon of this home for as long as it lives."""
        return self.path / "daemon.lock"

    @property
    def worker_lock(self) -> Path:
        """Held by the one process that has torch loaded, for as long as it lives."""
        return self.path / "worker.lock"

    @property
    def predictor_log(self) -> Path:
        """What the processes that predict wrote to standard error."""
        return self.path / "predictor.log"

    @property
    def models(self) -> Path:
        """The installed base models, a folder each."""
        return self.path / "models"

    @property
    def runs(self) -> Path:
        """The runs, a folder each."""
        return self.path / "runs"

    @property
    def engine(self) -> Path:
        """What is known of the NPU's engine, and its compiled graphs."""
        return self.path / "engine"

    @property
    def qnn_libraries(self) -> Path:
        """Qualcomm's libraries for Android, supplied by the user; LORAD_QNN_LIBRARIES wins."""
        return self.path / "qnn"

    @property
    def adapters(self) -> Path:
        """The adapters, a folder each, with their versions in it."""
        return self.path / "adapters"

    def run(self, run_id: int) -> Path:
        """The folder of one run: spec.json, worker.log, checkpoints."""
        return self.runs / str(run_id)

    def worker_log(self, run_id: int) -> Path:
        """What the workers of the run wrote to standard error."""
        return self.run(run_id) / "worker.log"

    def worker_logs(self) -> Iterator[Path]:
        """Those of all runs."""
        return self.runs.glob("*/worker.log")

    def kept_rows(self, adapter_id: int) -> Path:
        """What a worker keeps of the examples of an adapter in the top layers."""
        return self.adapters / str(adapter_id) / "prefix"

    def version_path(self, adapter_id: int, run_id: int) -> str:
        """Where the version of a run lies, relative to the home, with forward slashes."""
        return f"adapters/{adapter_id}/versions/run-{run_id:08d}"
