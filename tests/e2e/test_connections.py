"""Idle connections do not stop the API: a real server with few descriptors, and real sockets."""

import asyncio
import resource
import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from outcrop.cli.accept import ConnectionLimits
from tests.api.test_gate import Running, served
from tests.support.backend import Backend
from tests.support.tls import make_certificate

DESCRIPTORS = 256
QUARTER = DESCRIPTORS // 4


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Limit the descriptors of the processes that are started in the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def serving(backend: Backend, folder: Path, *options: str, **environment: str) -> Iterator[Running]:
    with ExitStack() as stack:
        with few_descriptors():
            running = stack.enter_context(served(backend.settings, folder / "log", *options, **environment))
        yield running


def connect(port: int, count: int, source: str) -> list[socket.socket]:
    return [
        socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0)) for _ in range(count)
    ]


def count_open(socks: list[socket.socket]) -> int:
    """Return how many of the connections the server has not closed."""
    return len(socks) - len(select.select(socks, [], [], 0)[0])


def wait_for_open(socks: list[socket.socket], count: int) -> None:
    deadline = time.monotonic() + 60
    while count_open(socks) > count and time.monotonic() < deadline:
        time.sleep(0.05)
    assert count_open(socks) == count


def get(url: str, source: str, **options: object) -> int:
    transport = httpx.HTTPTransport(local_address=source, **options)
    with httpx.Client(transport=transport, timeout=60) as client:
        return client.get(f"{url}/api/v1/findings").status_code


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_idle_connections_up_to_the_limit_do_not_stop_the_api(
    backend: Backend, tmp_path: Path, tls: bool
) -> None:
    cert, key = make_certificate(tmp_path)
    options = ("--tls-cert", str(cert), "--tls-key", str(key)) if tls else ()
    verify = ssl.create_default_context(cafile=str(cert))
    with serving(backend, tmp_path, *options) as running:
        port = httpx.URL(running.base_url).port or 0
        idle = connect(port, DESCRIPTORS + 50, "127.0.0.2")
        assert get(running.base_url, "127.0.0.1", verify=verify) == 401, "another address is served"
        assert get(running.base_url, "127.0.0.2", verify=verify) == 401, "and the same address"
        wait_for_open(idle, 0)
        for sock in idle:
            sock.close()
        assert "Traceback" not in running.log.read_text()


def test_one_address_holds_at_most_a_quarter_of_the_descriptors(backend: Backend, tmp_path: Path) -> None:
    with serving(backend, tmp_path) as running:
        port = httpx.URL(running.base_url).port or 0
        idle = connect(port, QUARTER + 20, "127.0.0.2")
        wait_for_open(idle, QUARTER)
        assert count_open(idle[20:]) == QUARTER, "the oldest ones were closed"
        for sock in idle:
            sock.close()


def test_many_addresses_together_leave_descriptors_for_the_database(backend: Backend, tmp_path: Path) -> None:
    with serving(backend, tmp_path) as running:
        port = httpx.URL(running.base_url).port or 0
        idle = [sock for n in range(2, 8) for sock in connect(port, QUARTER, f"127.0.0.{n}")]
        assert get(running.base_url, "127.0.0.1") == 401
        assert httpx.get(f"{running.base_url}/readyz", trust_env=False, timeout=60).status_code == 200
        for sock in idle:
            sock.close()
        assert "Traceback" not in running.log.read_text()


def test_a_trusted_proxy_may_hold_more(backend: Backend, tmp_path: Path) -> None:
    with serving(backend, tmp_path, OUTCROP_TRUSTED_PROXIES="127.0.0.2/32") as running:
        port = httpx.URL(running.base_url).port or 0
        idle = connect(port, 2 * QUARTER, "127.0.0.2")
        assert get(running.base_url, "127.0.0.1") == 401
        assert count_open(idle) == 2 * QUARTER
        wait_for_open(idle, 0)
        for sock in idle:
            sock.close()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        ("2001:db8::2%eth0", "2001:db8::/64"),
        ("192.0.2.9", None),
    ],
)
def test_an_address_that_sends_requests_on_all_its_connections_gets_no_more(
    host: str, address: str | None
) -> None:
    async def main() -> None:
        limits = ConnectionLimits(4, ["192.0.2.0/24"])
        first, second = socket.socketpair()
        with first, second:
            made = limits.admit(first, host)
            assert made is not None
            assert made.address == address
            made.set_waiting(waiting=False)
            assert (limits.admit(second, host) is None) is (address is not None)
            made.closed()
            assert limits.admit(second, host) is not None

    asyncio.run(main())
