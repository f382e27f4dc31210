"""A server that never ends its recovery from a crash is killed, so that it can be started again."""

import os
import signal
import time
from pathlib import Path

import psycopg

from outcrop.processes import child_pids
from outcrop.store.embedded.binaries import find_programs
from outcrop.store.embedded.cluster import choose_cluster, read_pid
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
    deadline = time.monotonic() + SECONDS
    while True:
        for child in child_pids(server):
            try:
                if b"startup" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)
                    return
            except OSError:
                continue
        assert time.monotonic() < deadline
