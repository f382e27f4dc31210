"""Disturb an external PostgreSQL, through a proxy, and the embedded one."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg

from outcrop.store.embedded.server import embedded_postgres
from prove.kills import kind_of
from prove.load import Load, open_load
from prove.service import Service, open_service, until
from prove.trial import Report, Setting

_FAULTS = ("cut", "slow", "stall", "refuse", "terminate", "restart", "no connection left")
_RESTARTS = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)  # it is started again
# What ends PostgreSQL: when its clients have left, at once, without cleaning up.
_SIGNALS = {
    "smart stop": signal.SIGTERM,
    "fast stop": signal.SIGINT,
    "immediate stop": signal.SIGQUIT,
    "kill": signal.SIGKILL,
}
_MAX_CONNECTIONS = 30  # a service with two API processes and a worker may use 50
_TERMINATE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
                  AND application_name LIKE 'outcrop%'"""


@dataclass
class Proxy:
    """Forwards TCP connections to PostgreSQL's Unix socket; `fault` says what it does to them."""

    target: str
    port: int = 0
    fault: str = ""
    open: set[socket.socket] = field(default_factory=set)

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        if self.fault in {"cut", "refuse"}:
            client.close()
            return
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self.target)
        except OSError:
            client.close()
            return
        self.open |= {client, server}
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Copy bytes in one direction, as slowly as the fault wants."""
        with suppress(OSError):
            while data := source.recv(65536):
                if self.fault == "slow":
                    time.sleep(0.1)
                while self.fault == "stall":
                    time.sleep(0.05)
                sink.sendall(data)
        for end in (source, sink):
            self.open.discard(end)
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        """Close all connections."""
        for end in list(self.open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    """Return a proxy of the PostgreSQL at `url`, and the address of the same database through it."""
    info = psycopg.conninfo.conninfo_to_dict(url)
    proxy = Proxy(str(Path(str(info["host"])) / f".s.PGSQL.{info.get('port', 5432)}"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.port = listener.getsockname()[1]
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        try:
            yield (
                proxy,
                psycopg.conninfo.make_conninfo(url, host="127.0.0.1", port=proxy.port, sslmode="disable"),
            )
        finally:
            proxy.fault = "refuse"
            listener.shutdown(socket.SHUT_RDWR)


def try_database(setting: Setting, report: Report) -> None:
    """Disturb an external database, then an embedded one, while findings change; lose no answer."""
    setting.folder.mkdir(parents=True)
    half = replace(setting, seconds=setting.seconds / 2)
    _try_external(replace(half, folder=setting.folder / "external"), report)
    _try_embedded(replace(half, folder=setting.folder / "embedded"), report)


def _try_external(setting: Setting, report: Report) -> None:
    """Disturb a PostgreSQL with few connections that the service reaches through a proxy."""
    folder = setting.folder / "postgres"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    with embedded_postgres(folder) as direct, psycopg.connect(direct, autocommit=True) as db:
        db.execute(f"ALTER SYSTEM SET max_connections = {_MAX_CONNECTIONS}".encode())  # from the next start
    with (
        embedded_postgres(folder, watch=True) as direct,
        proxied(direct) as (proxy, url),
        open_load(setting.folder / "load", setting.seed) as load,
        open_service(
            setting.folder / "service",
            OUTCROP_DATABASE_URL=url,
            OUTCROP_SECRET_KEY="a key of the trials only",
            **load.environment,
        ) as service,
    ):
        data = _data_folder(direct)

        def disturb(fault: str, seconds: float) -> None:
            if fault == "terminate":
                _terminate(direct)
            elif fault == "restart":
                os.kill(_postmaster(data), _RESTARTS[int(seconds * 10) % len(_RESTARTS)])
            elif fault == "no connection left":
                with _all_connections(direct):
                    time.sleep(seconds)
            else:
                proxy.fault = fault
                if fault == "cut":
                    proxy.cut()
                time.sleep(seconds)
                proxy.fault = ""

        _disturb_under_load(service, load, setting, report, disturb, _FAULTS)


def _try_embedded(setting: Setting, report: Report) -> None:
    """Stop, freeze and kill the PostgreSQL that the service has started itself."""
    with (
        open_load(setting.folder / "load", setting.seed) as load,
        open_service(setting.folder / "service", **load.environment) as service,
    ):

        def disturb(fault: str, seconds: float) -> None:
            kinds = {pid: kind_of(line) for pid, line in service.processes().items()}
            servers = [pid for pid, kind in kinds.items() if kind == "postgres"]
            pids = [pid for pid, kind in kinds.items() if kind in {"backend", "postgres process"}]
            if fault == "freeze":
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    for pid in servers + pids:
                        with suppress(ProcessLookupError):
                            os.kill(pid, number)
                    time.sleep(seconds if number == signal.SIGSTOP else 0)
            else:
                for pid in servers:
                    os.kill(pid, _SIGNALS[fault])

        _disturb_under_load(service, load, setting, report, disturb, (*_SIGNALS, "freeze"))


def _disturb_under_load(
    service: Service,
    load: Load,
    setting: Setting,
    report: Report,
    disturb: Callable[[str, float], None],
    faults: Sequence[str],
) -> None:
    """Serve, change findings, and disturb the database with random faults until the time is over."""
    rng = setting.random()
    service.serve("--processes", "2")
    load.connect(service, rng, findings=200 if setting.short else 1_000)
    load.resume()
    deadline = setting.deadline()
    while True:
        fault = rng.choice(faults)
        report.count(f"times {fault}")
        with suppress(OSError, psycopg.Error):  # the database is still away because of the fault before
            disturb(fault, rng.uniform(0.5, 2 if setting.short else 12))
        time.sleep(rng.uniform(0.5, 3))
        if time.monotonic() > deadline:
            break
    until(service.is_ready, "the service to be ready again")
    alive = service.process is not None and service.process.poll() is None
    report.check(alive, "serve ended although only its database was disturbed")
    load.verify(service, report)
    service.stop()


def _terminate(url: str) -> None:
    """End all sessions of clients."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(_TERMINATE)


def _data_folder(url: str) -> Path:
    """Return PostgreSQL's own folder."""
    with psycopg.connect(url) as db:
        (folder,) = db.execute("SHOW data_directory").fetchone() or ("",)
    return Path(folder)


def _postmaster(data: Path) -> int:
    """Return the process id of the PostgreSQL of a folder."""
    return int((data / "postmaster.pid").read_text().split()[0])


@contextmanager
def _all_connections(url: str) -> Iterator[None]:
    """End the service's sessions, and hold all connections that the database has."""
    with ExitStack() as stack:
        db = stack.enter_context(psycopg.connect(url, autocommit=True))
        for _ in range(2):
            with suppress(psycopg.OperationalError):
                for _ in range(_MAX_CONNECTIONS):
                    stack.enter_context(psycopg.connect(url, autocommit=True))
            db.execute(_TERMINATE)
        yield
