"""A server that never ends its recovery from a crash is killed, so that it can be started again."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg

from outcrop.processes import child_pids
from outcrop.store.embedded.binaries import find_programs
from outcrop.store.embedded.cluster import Cluster, choose_cluster, read_pid
from outcrop.store.embedded.recovery import RecoveryWatch
from outcrop.store.embedded.server import embedded_postgres

SECONDS = 120


def test_a_server_whose_recovery_was_killed_is_killed_and_starts_again(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path) as url:
        cluster = choose_cluster(tmp_path / "postgres", find_programs(None), tmp_path / "fallback")
        server = read_pid(cluster.data / "postmaster.pid") or 0
        with psycopg.connect(url) as db:
            os.kill(db.info.backend_pid, signal.SIGKILL)
            kill_recovery(server)
        watch, deadline = RecoveryWatch(cluster, seconds=1.0), time.monotonic() + SECONDS
        while cluster.is_server(server):  # the server may also have ended by itself
            watch.kill_if_stuck()
            assert time.monotonic() < deadline
            time.sleep(0.1)
    with embedded_postgres(tmp_path) as url, psycopg.connect(url) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_works_is_not_killed(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path) as url:
        cluster = choose_cluster(tmp_path / "postgres", find_programs(None), tmp_path / "fallback")
        watch = RecoveryWatch(cluster, seconds=0.0)
        for _ in range(3):
            watch.kill_if_stuck()
        with psycopg.connect(url) as db:
            assert db.execute("SELECT 1").fetchone() == (1,)


def kill_recovery(server: int) -> None:
    """Wait for the process that recovers after a crash, and kill it."""
    os.kill(wait_for_child(server, b"startup"), signal.SIGKILL)


def test_a_server_that_lost_its_recovery_while_it_started_is_killed(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path) as url:
        cluster = choose_cluster(tmp_path / "postgres", find_programs(None), tmp_path / "fallback")
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("CREATE TABLE t AS SELECT generate_series(1, 1000000) AS n")
            os.kill(read_pid(cluster.data / "postmaster.pid") or 0, signal.SIGKILL)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(start_and_ask, tmp_path)
        server = wait_for_server(cluster)
        # Its recovery takes a second or more. A crash of another process then ends it, and it begins once more.
        recovery = wait_for_child(server, b"startup")
        os.kill(recovery, signal.SIGSTOP)
        os.kill(wait_for_child(server, b"checkpointer"), signal.SIGKILL)
        while Path(f"/proc/{recovery}").exists():
            time.sleep(0.01)
        os.kill(wait_for_child(server, b"startup"), signal.SIGKILL)
        assert (cluster.data / "postmaster.pid").read_text().split()[-1] == "starting"
        assert started.result(SECONDS) == 1_000_000


def start_and_ask(folder: Path) -> int:
    """Start the server of a data folder and return the number of rows."""
    with embedded_postgres(folder) as url, psycopg.connect(url) as db:
        row = db.execute("SELECT count(*) FROM t").fetchone()
        assert row is not None
        return int(row[0])


def wait_for_server(cluster: Cluster) -> int:
    """Return the process id of the server as soon as it has one."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            pid = read_pid(cluster.data / "postmaster.pid")
            if pid is not None and cluster.is_server(pid):
                return pid
    raise TimeoutError


def wait_for_child(server: int, name: bytes) -> int:
    """Return the process id of a child with this name as soon as there is one."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for child in child_pids(server):
            with suppress(OSError):
                if name in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
    raise TimeoutError
