"""Test deliveries to hostile receivers: one request each, limited time and memory, a recorded outcome."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from outcrop.domain.webhook import Delivery
from outcrop.net.guard import Egress
from outcrop.services import webhooks
from tests.support.databases import migrated_database
from tests.support.deliveries import DeliveryTestbed, open_testbed
from tests.support.hostile import KINDS, name_of

TIMEOUT = "no complete response within 10 seconds"
# kind of receiver -> (outcome, status, reason) that is recorded
EXPECTED = {
    "never-answers": ("failed", None, TIMEOUT),
    "one-byte-a-second": ("failed", None, TIMEOUT),
    "endless-headers": ("failed", None, "no final response within the size limit"),
    "endless-body": ("ok", 200, None),
    "endless-chunks": ("ok", 200, None),
    "gzip-bomb": ("ok", 200, None),
    "interim-flood": ("failed", None, "no final response within the size limit"),
    "redirect": ("failed", 307, None),
    "redirect-inside": ("failed", 302, None),
    "reset": ("failed", None, "the connection was lost"),
    "half-close": ("failed", None, "the connection was closed without a response"),
    "closes-after-the-request": ("failed", None, "the connection was closed without a response"),
    "204-with-a-body": ("ok", 204, None),
    "wrong-length": ("failed", 200, "the response ended early"),
    "http-0.9": ("failed", None, "the response is not HTTP"),
    "wrong-certificate": ("failed", None, "the certificate is not trusted"),
    "expired-certificate": ("failed", None, "the certificate is not trusted"),
    "plain-http": ("failed", None, "TLS failed"),
    "no-handshake": ("failed", None, TIMEOUT),
}
UNSENT = {"wrong-certificate", "expired-certificate", "plain-http", "no-handshake"}
EVENTS_PER_KIND = 3  # so that a leak of memory shows


@dataclass
class HostileDeliveries:
    deliveries: dict[str, list[Delivery]]
    connections: dict[str, int]
    requests: dict[str, int]
    trail: dict[str, list[str]]
    seconds: float
    grown: int  # bytes by which the memory grew at most


@pytest.fixture(scope="module")
def results(
    cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostileDeliveries]:
    """Deliver events to all kinds of receivers at the same time."""
    folder = tmp_path_factory.mktemp("hostile")
    command = [sys.executable, "-m", "tests.support.hostile", str(folder)]
    with (
        open_testbed(migrated_database(cluster, f"hostile_{worker_id}"), folder) as testbed,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        ports: dict[str, int] = json.loads(process.stdout.readline())
        routes = [f"{name_of(kind)}:443=127.0.0.1:{port}" for kind, port in ports.items()]
        egress = Egress.parse(["127.0.0.0/8"], routes, folder / "ca.pem")
        customers = {kind: testbed.customer(f"https://{name_of(kind)}/in") for kind in EXPECTED}
        trap_customer = testbed.customer("https://trap.example/")
        testbed.event(trap_customer)
        testbed.deliver(egress)  # everything is loaded before memory is measured
        for customer in customers.values():
            testbed.event(customer, EVENTS_PER_KIND)
        began = time.monotonic()
        with MemoryWatch() as memory_watch:
            testbed.deliver(egress, seconds=120)
        seconds = time.monotonic() - began
        process.stdin.write("\n")
        process.stdin.flush()
        counts = json.loads(process.stdout.readline())
        process.kill()
        yield HostileDeliveries(
            {kind: deliveries_of(testbed, customer.account.id) for kind, customer in customers.items()},
            {kind: counts[kind][0] for kind in counts},
            {kind: counts[kind][1] for kind in counts},
            {
                kind: [outcome for _, outcome, _ in testbed.trail(customer)]
                for kind, customer in customers.items()
            },
            seconds,
            memory_watch.grown,
        )


def deliveries_of(testbed: DeliveryTestbed, account_id: int) -> list[Delivery]:
    return testbed.backend.run(lambda db: webhooks.list_deliveries(db, account_id, limit=10))


class MemoryWatch(threading.Thread):
    """Measures the highest memory use of this process during the block."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.began = self.most = memory()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            self.most = max(self.most, memory())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    @property
    def grown(self) -> int:
        return self.most - self.began


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_every_kind_has_an_expectation() -> None:
    assert set(EXPECTED) == set(KINDS) - {"trap"}
    assert len(EXPECTED) >= 17


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_hostile_receiver_gets_one_request_and_the_outcome_is_recorded(
    results: HostileDeliveries, kind: str
) -> None:
    for delivery in results.deliveries[kind]:
        assert (delivery.state, delivery.status, delivery.reason) == EXPECTED[kind]
        assert delivery.ms is not None
        assert delivery.ms < 60_000
        assert len((delivery.answer or "").encode()) <= 2048 * 3, (
            "an invalid byte becomes a character of three bytes"
        )
    assert len(results.deliveries[kind]) == EVENTS_PER_KIND
    assert results.trail[kind] == [EXPECTED[kind][0]] * EVENTS_PER_KIND
    assert results.connections[kind] == EVENTS_PER_KIND
    assert results.requests[kind] == (0 if kind in UNSENT else EVENTS_PER_KIND)


def test_no_redirect_is_followed(results: HostileDeliveries) -> None:
    assert results.connections["trap"] == 1, "only the event that was addressed to it"


def test_time_and_memory_are_limited(results: HostileDeliveries) -> None:
    assert results.seconds < 60
    assert results.grown < 48 << 20
