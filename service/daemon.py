"""The daemon's life: lock the home, open what is in it, serve, and leave in order."""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import FrameType

import uvicorn

from service.app import create_app
from service.clients.auth import Authenticator, owner_token, token_hash
from service.clients.server_key import ServerKeys, master_key
from service.context import Context
from service.door.connections import Connection
from service.door.length import LengthCheck
from service.door.listener import Listener, PortError
from service.door.local_socket import LocalSocket, LocalSocketError, local_socket
from service.durable import write_durably
from service.eraser import Eraser
from service.gates.gatekeeper import Gatekeeper
from service.gates.limits import Limits
from service.gates.pacing import Pacer
from service.home import Home
from service.locks import FileLock
from service.log_lines import formatter
from service.models import ModelFolder
from service.nights.chooser import NightChooser
from service.nights.conductor import Conductor
from service.nights.moment import Moments
from service.one_heap import use_one_heap
from service.phone.phone import Phone
from service.predictions.desk import PredictionDesk
from service.runs.old_manifests import remove_labels
from service.runs.run_feed import RunFeed
from service.runs.supervisor import Supervisor
from service.sensors.sensors import Sensors
from service.settings import Settings
from service.views import timestamp
from storage import clients, history
from storage.clock import now_ms
from storage.database import Database

_LOCK_PATIENCE_SECONDS = 1.0
_GOODBYE_SECONDS = 5
_MOST_HEAD_BYTES = 16 * 1024
_BACKLOG = 128  # also how many asyncio accepts before it looks at them

_log = logging.getLogger("lorad.daemon")


class DaemonError(Exception):
    """The daemon can't start; the message says why and what to do."""


class Server(uvicorn.Server):
    """uvicorn's, which would wait for open event streams when it is told to stop."""

    def __init__(
        self, feed: RunFeed, desk: PredictionDesk, look: Callable[[], None], config: uvicorn.Config
    ) -> None:
        """Serve, and end the streams of ``feed`` and ``desk`` when told to stop.

        SIGUSR1 calls ``look``. A phone's heartbeat sends it: the daemon's clocks stand still while
        the phone sleeps, and half a minute after it was woken it may sleep again.
        """
        super().__init__(config)
        self._feed = feed
        self._desk = desk
        self._look = look

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._look)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        self._feed.closing = True
        self._desk.closing = True
        super().handle_exit(sig, frame)


def serve(settings: Settings, limits: Limits, announce: Callable[[int, Path], None]) -> None:
    """Serve the home of ``settings`` until SIGTERM or SIGINT; the gates keep to ``limits``.

    ``announce`` is called with the port and the token's file once requests are answered.

    Raises:
        DaemonError: another daemon serves this home, or the port or the socket is taken.
        service.secret_file.SecretFileError, storage.database.DatabaseFileError,
        storage.migrations.SchemaVersionError: what lies in the home can't be used.
    """
    os.umask(0o077)
    use_one_heap()
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(formatter(settings.log))
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    home = Home.at(settings.home)
    home.create()
    lock = FileLock.take(home.daemon_lock, patience=_LOCK_PATIENCE_SECONDS)
    if lock is None:
        raise DaemonError(f"another daemon serves {home.path} already; one home has one daemon")
    try:
        listener = Listener(settings.port)
    except PortError as error:
        raise DaemonError(str(error)) from None
    local: LocalSocket | None = None
    try:
        local = local_socket(settings.socket, home.socket)
        with Database(home.database) as database:
            _serve(settings, limits, home, database, listener, local, announce)
    except LocalSocketError as error:
        raise DaemonError(str(error)) from None
    finally:
        if local is not None:
            local.close()
        listener.close()
        lock.release()


def _serve(
    settings: Settings,
    limits: Limits,
    home: Home,
    database: Database,
    listener: Listener,
    local: LocalSocket | None,
    announce: Callable[[int, Path], None],
) -> None:
    token = owner_token(home.token)
    with database.write() as session:
        clients.put(session, clients.OWNER, token_hash(token.encode()))
    with database.read() as session:
        authenticator = Authenticator(clients.every(session))
    models = ModelFolder(home.models)
    limits = limits.with_memory(settings.memory_bytes)
    feed = RunFeed()
    moments, sensors, gatekeeper = Moments(), Sensors(settings, home), Gatekeeper(limits)
    chooser = NightChooser(settings, home, models, moments, gatekeeper)
    desk = PredictionDesk(settings, home, limits)
    training_changed = threading.Event()
    supervisor = Supervisor(
        settings, home, database, feed, chooser, desk, training_changed=training_changed.set
    )
    phone = Phone(settings, home, database, supervisor, sensors, training_changed)
    conductor = Conductor(
        database,
        supervisor,
        chooser,
        moments,
        gatekeeper,
        sensors,
        pace=Pacer(limits).duty,
    )
    eraser = Eraser(home, database, supervisor)
    context = Context(
        settings,
        home,
        database,
        models,
        LengthCheck(models),
        authenticator,
        supervisor,
        conductor,
        sensors,
        eraser,
        feed,
        desk,
        ServerKeys(master_key(home.server_key), listener.port),
        phone,
    )
    version = metadata.version("lorad")
    app = create_app(context, authenticator, listener.port, version)
    server = Server(
        feed,
        desk,
        conductor.nudge,
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
        ),
    )
    eraser.remove_folders()
    remove_labels(home)
    desk.start()
    phone.start()
    supervisor.start()
    eraser.start()
    conductor.start()
    try:
        with database.write() as session:
            history.add(session, "daemon-started", f"lorad {version} started")
        sockets = [listener.socket, *([local.socket] if local is not None else [])]
        for one in sockets:
            one.listen(_BACKLOG)
        started = {
            "port": listener.port,
            "socket": None if local is None else str(local.path),
            "pid": os.getpid(),
            "started_at": timestamp(now_ms()),
        }
        write_durably(home.daemon_file, json.dumps(started).encode())
        announce(listener.port, home.token)
        _keep_what_is_loaded()
        server.run(sockets=sockets)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the loop has left it to kill
        home.daemon_file.unlink(missing_ok=True)
        conductor.stop()
        desk.stop()
        supervisor.stop()
        eraser.stop()
        phone.stop()
        _log.info("the daemon has ended")


def _keep_what_is_loaded() -> None:
    # None of it becomes garbage: a full collection need not walk through it all again, for which
    # every request would wait 70 ms.
    gc.collect()
    gc.freeze()


def _leave(number: int, frame: object) -> None:
    # uvicorn puts its own handlers over these, and raises the signal again when it has stopped.
    raise SystemExit(0)
