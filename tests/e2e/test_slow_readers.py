"""Clients that read slowly do not stop the service: a real server, and real sockets with small buffers."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from outcrop.cli.api_server import POOL_SIZE
from outcrop.limits import CLIENT_SECONDS
from tests.api.test_gate import Running, served, until
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import PASSWORD, make_person, sign_in_by_form

LINES = 20_000  # of the audit trail: some MB


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    """Create an account with a long audit trail: no download fits into the buffers of a connection."""
    tenant = backend.tenant()
    backend.sql(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           SELECT %s, now(), 'test', 'test.line', n::text, 'ok', jsonb_build_object('text', repeat('x', 300))
           FROM generate_series(1, %s) n""",
        tenant.account.id,
        LINES,
    )
    backend.import_(tenant.account, *(make_line() for _ in range(3)))
    return tenant


@contextmanager
def slow_readers(running: Running, cookie: str, path: str, count: int) -> Iterator[list[socket.socket]]:
    """Send requests and read nothing of the responses."""
    port = httpx.URL(running.base_url).port or 0
    readers = []
    for _ in range(count):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(60)
        reader.connect(("127.0.0.1", port))
        reader.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
        readers.append(reader)
    try:
        for reader in readers:
            assert reader.recv(12) == b"HTTP/1.1 200"
        yield readers
    finally:
        for reader in readers:
            reader.close()


def cookie_of(backend: Backend, tenant: Tenant, running: Running) -> str:
    email = make_person(backend, tenant)
    with httpx.Client(base_url=running.base_url, trust_env=False, timeout=60) as client:
        assert sign_in_by_form(client, email, PASSWORD).status_code == 303
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def test_slow_readers_hold_no_connection_and_are_disconnected(
    backend: Backend, tenant: Tenant, tmp_path: Path
) -> None:
    with served(backend.settings, tmp_path / "log", OUTCROP_RATE_LIMIT_PER_MINUTE="0") as running:
        cookie = cookie_of(backend, tenant, running)
        began = time.monotonic()
        with slow_readers(running, cookie, "/profile/audit.jsonl", POOL_SIZE + 4) as readers:
            headers = {"Authorization": f"Bearer {tenant.key}"}
            with httpx.Client(
                base_url=running.base_url, headers=headers, trust_env=False, timeout=60
            ) as client:
                for _ in range(20):
                    assert client.get("/api/v1/findings").status_code == 200
            count = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
            until(60, lambda: backend.sql(count) == [(0,)])
            disconnected = "slow_reader_disconnected"
            until(120, lambda: running.log.read_text().count(disconnected) == len(readers))
            assert time.monotonic() - began > CLIENT_SECONDS
        assert not re.search("Traceback|request_failed|request_timed_out", running.log.read_text())


def test_a_client_that_reads_fast_enough_gets_everything_in_order(
    backend: Backend, tenant: Tenant, tmp_path: Path
) -> None:
    with served(backend.settings, tmp_path / "log") as running:
        cookie = cookie_of(backend, tenant, running)
        with slow_readers(running, cookie, "/profile/audit.jsonl", 1) as (reader,):
            received = b""
            time.sleep(2)
            while not received.endswith(b"0\r\n\r\n"):
                received += reader.recv(1 << 20)
        numbers = [int(number) for number in re.findall(rb'"target":"(\d+)"', received.replace(b"\r\n", b""))]
        assert numbers[:LINES] == list(range(1, LINES + 1))
