"""Real database servers, where the machine has them: started on loopback in a folder of the test's own, and stopped with it."""

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

from tests.support.tls import certificate

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/lib/rabbitmq/bin"])
_QUICK = [
    "--no-defaults",
    "--skip-name-resolve",
    "--debug-no-sync",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=4M",
]


def program(name: str, package: str) -> str:
    """Find a server's program, or skip what needs it and say how to get it."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(
            f"no {name} on this machine: install the package {package} (apt-get install {package}) to run this"
        )
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    command: list[str], port: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server until the block ends; it is up when its port answers."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            until = time.monotonic() + 60
            while not _answers(port):
                assert process.poll() is None, (folder / "output").read_text()
                assert time.monotonic() < until, (folder / "output").read_text()
                time.sleep(0.05)
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextmanager
def mariadb(folder: Path, statements: str) -> Iterator[int]:
    """Run MariaDB with TLS after these statements; give its port."""
    server, install = program("mariadbd", "mariadb-server"), program("mariadb-install-db", "mariadb-server")
    cert, key = certificate(folder, "db.example")
    who = f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', '')}"
    data, port = f"--datadir={folder / 'data'}", free_port()
    made = [install, *_QUICK, data, who, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "init.sql").write_text(statements)
    at = [
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder / 'sock'}",
        f"--pid-file={folder / 'pid'}",
    ]
    more = [
        f"--ssl-cert={cert}",
        f"--ssl-key={key}",
        f"--init-file={folder / 'init.sql'}",
        "--innodb-buffer-pool-size=8M",
    ]
    with _running([server, *_QUICK, data, who, *at, *more], port, folder):
        yield port


@contextmanager
def redis(folder: Path, settings: str) -> Iterator[tuple[int, int]]:
    """Run Redis with these settings; give its port, and that for TLS."""
    server = program("redis-server", "redis-server")
    cert, key = certificate(folder, "db.example")
    port, secure = free_port(), free_port()
    tls = f"tls-port {secure}\ntls-cert-file {cert}\ntls-key-file {key}\ntls-ca-cert-file {cert}\ntls-auth-clients no\n"
    (folder / "redis.conf").write_text(f'port {port}\nbind 127.0.0.1\nsave ""\ndir {folder}\n{tls}{settings}')
    with _running([server, str(folder / "redis.conf")], port, folder):
        yield port, secure


@contextmanager
def rabbitmq(folder: Path, settings: str) -> Iterator[tuple[int, int]]:
    """Run RabbitMQ with these settings; give its port, and that for TLS."""
    program("rabbitmq-server", "rabbitmq-server")
    # The distribution's own script beside this one changes to a user and a folder of the machine's.
    server = shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin") or program(
        "rabbitmq-server", "rabbitmq-server"
    )
    cert, key = certificate(folder, "db.example")
    port, secure, between, names = (free_port() for _ in range(4))
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlisteners.ssl.1 = 127.0.0.1:{secure}\n"
        f"ssl_options.certfile = {cert}\nssl_options.keyfile = {key}\nlog.console = true\nlog.file = false\n{settings}"
    )
    environment = {
        "PATH": _PATH,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"outcrop{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
    }
    try:
        with _running([server], port, folder, environment):
            yield port, secure
    finally:  # Erlang's register of names is a daemon of its own, on a port of its own
        subprocess.run(
            ["epmd", "-port", str(names), "-kill"], env=environment, capture_output=True, check=False
        )
