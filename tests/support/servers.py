"""Run real database servers on loopback, in a folder of the test.

Tests that need a server which is not installed are skipped.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.tls import make_certificate

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/lib/rabbitmq/bin"])
_START_SECONDS = 60
_FAST_MARIADB = [
    "--no-defaults",
    "--skip-name-resolve",
    "--debug-no-sync",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=4M",
]


def find_program(name: str, package: str) -> str:
    """Return the path of a server program; skip the test, naming the package to install, if it is missing."""
    path = shutil.which(name, path=_PATH)
    if path is None:
        pytest.skip(f"{name} is not installed: run `apt-get install {package}` to run this test")
    return path


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _run_server(
    command: list[str], port: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Start a server, wait until it accepts connections on `port`, and kill it when the block ends."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _accepts_connections(port):
                assert process.poll() is None, (folder / "output").read_text()
                assert time.monotonic() < deadline, (folder / "output").read_text()
                time.sleep(0.05)
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _accepts_connections(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextmanager
def run_mariadb(folder: Path, statements: str) -> Iterator[int]:
    """Run MariaDB with TLS, execute these statements at its start, and yield its port."""
    server = find_program("mariadbd", "mariadb-server")
    install = find_program("mariadb-install-db", "mariadb-server")
    cert, key = make_certificate(folder, "db.example")
    user = f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', '')}"
    data, port = f"--datadir={folder / 'data'}", free_port()
    subprocess.run(
        [install, *_FAST_MARIADB, data, user, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True,
        capture_output=True,
    )
    (folder / "init.sql").write_text(statements)
    options = [
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder / 'sock'}",
        f"--pid-file={folder / 'pid'}",
        f"--ssl-cert={cert}",
        f"--ssl-key={key}",
        f"--init-file={folder / 'init.sql'}",
        "--innodb-buffer-pool-size=8M",
    ]
    with _run_server([server, *_FAST_MARIADB, data, user, *options], port, folder):
        yield port


@contextmanager
def run_redis(folder: Path, settings: str) -> Iterator[tuple[int, int]]:
    """Run Redis with these settings and yield its port and its TLS port."""
    server = find_program("redis-server", "redis-server")
    cert, key = make_certificate(folder, "db.example")
    port, tls_port = free_port(), free_port()
    tls = (
        f"tls-port {tls_port}\ntls-cert-file {cert}\ntls-key-file {key}\n"
        f"tls-ca-cert-file {cert}\ntls-auth-clients no\n"
    )
    (folder / "redis.conf").write_text(f'port {port}\nbind 127.0.0.1\nsave ""\ndir {folder}\n{tls}{settings}')
    with _run_server([server, str(folder / "redis.conf")], port, folder):
        yield port, tls_port


@contextmanager
def run_rabbitmq(folder: Path, settings: str) -> Iterator[tuple[int, int]]:
    """Run RabbitMQ with these settings and yield its port and its TLS port."""
    find_program("rabbitmq-server", "rabbitmq-server")
    # The script of the Linux distribution switches to another user and folder; this one does not.
    server = shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin") or find_program(
        "rabbitmq-server", "rabbitmq-server"
    )
    cert, key = make_certificate(folder, "db.example")
    port, tls_port, distribution_port, epmd_port = (free_port() for _ in range(4))
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlisteners.ssl.1 = 127.0.0.1:{tls_port}\n"
        f"ssl_options.certfile = {cert}\nssl_options.keyfile = {key}\n"
        f"log.console = true\nlog.file = false\n{settings}"
    )
    erlang_options = "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"
    environment = {
        "PATH": _PATH,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": f"outcrop{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": erlang_options,
    }
    try:
        with _run_server([server], port, folder, environment):
            yield port, tls_port
    finally:  # epmd, Erlang's name server, is a daemon of its own
        subprocess.run(
            ["epmd", "-port", str(epmd_port), "-kill"], env=environment, capture_output=True, check=False
        )
