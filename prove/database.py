"""Put a proxy between the service and its PostgreSQL; cut, slow down, stall and refuse its connections."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from outcrop.store.embedded.server import embedded_postgres
from prove.load import open_load
from prove.service import open_service, until
from prove.trial import Report, Setting

_FAULTS = ("cut", "slow", "stall", "refuse", "terminate")
_TERMINATE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"""


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
    """Disturb an external database while findings change; lose nothing that was acknowledged."""
    rng = setting.random()
    setting.folder.mkdir(parents=True)
    setting.folder.chmod(0o700)
    with (
        embedded_postgres(setting.folder / "postgres") as direct,
        proxied(direct) as (proxy, url),
        open_load(setting.folder / "load", setting.seed) as load,
        open_service(
            setting.folder / "service",
            OUTCROP_DATABASE_URL=url,
            OUTCROP_SECRET_KEY="a key of the trials only",
            **load.environment,
        ) as service,
    ):
        service.serve("--processes", "2")
        load.connect(service, rng, findings=200 if setting.short else 1_000)
        load.resume()
        deadline = setting.deadline()
        while True:
            fault = rng.choice(_FAULTS)
            report.count(f"times {fault}")
            if fault == "terminate":
                with psycopg.connect(direct, autocommit=True) as db:
                    db.execute(_TERMINATE)
            else:
                proxy.fault = fault
                if fault == "cut":
                    proxy.cut()
                time.sleep(rng.uniform(0.5, 2 if setting.short else 12))
                proxy.fault = ""
            time.sleep(rng.uniform(0.5, 3))
            if time.monotonic() > deadline:
                break
        until(service.is_ready, "the service to be ready again")
        alive = service.process is not None and service.process.poll() is None
        report.check(alive, "serve ended although only its database was disturbed")
        load.verify(service, report)
        service.stop()
