"""Receivers that behave badly: one request each, over in time, written down, and no memory lost to them."""

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
from tests.support.deliveries import Office, open_office
from tests.support.hostile import KINDS, name_of
from tests.support.workers import new_database

TIMEOUT = "no complete response within 10 seconds"
# What is written: outcome, status, reason.
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
AT_ONCE = 3  # of each kind: memory would tell


@dataclass
class Seen:
    deliveries: dict[str, list[Delivery]]
    connections: dict[str, int]
    requests: dict[str, int]
    trail: dict[str, list[str]]
    seconds: float
    grown: int  # bytes of memory at the most


@pytest.fixture(scope="module")
def seen(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Deliver to all of them at the same time."""
    folder = tmp_path_factory.mktemp("hostile")
    command = [sys.executable, "-m", "tests.support.hostile", str(folder)]
    with (
        open_office(new_database(cluster, f"hostile_{worker_id}"), folder) as office,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        ports: dict[str, int] = json.loads(process.stdout.readline())
        to = [f"{name_of(kind)}:443=127.0.0.1:{port}" for kind, port in ports.items()]
        egress = Egress.parse(["127.0.0.0/8"], to, folder / "ca.pem")
        customers = {kind: office.customer(f"https://{name_of(kind)}/in") for kind in EXPECTED}
        quiet = office.customer("https://trap.example/")
        office.event(quiet)
        office.deliver(egress)  # everything is loaded before memory is measured
        for customer in customers.values():
            office.event(customer, AT_ONCE)
        began = time.monotonic()
        with Watch() as watch:
            office.deliver(egress, seconds=30)
        seconds = time.monotonic() - began
        process.stdin.write("\n")
        process.stdin.flush()
        counts = json.loads(process.stdout.readline())
        process.kill()
        yield Seen(
            {kind: deliveries_of(office, customer.account.id) for kind, customer in customers.items()},
            {kind: counts[kind][0] for kind in counts},
            {kind: counts[kind][1] for kind in counts},
            {
                kind: [outcome for _, outcome, _ in office.trail(customer)]
                for kind, customer in customers.items()
            },
            seconds,
            watch.grown,
        )


def deliveries_of(office: Office, account_id: int) -> list[Delivery]:
    return office.backend.run(lambda db: webhooks.list_deliveries(db, account_id, limit=10))


class Watch(threading.Thread):
    """Looks at this process's memory."""

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


def test_every_kind_is_here() -> None:
    assert set(EXPECTED) == set(KINDS) - {"trap"}
    assert len(EXPECTED) >= 17


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_hostile_receiver_gets_one_request_and_its_end_is_written(seen: Seen, kind: str) -> None:
    for delivery in seen.deliveries[kind]:
        assert (delivery.state, delivery.status, delivery.reason) == EXPECTED[kind]
        assert delivery.ms is not None
        assert delivery.ms < 11_000
        assert len((delivery.answer or "").encode()) <= 2048 * 3, (
            "a byte that is no text becomes a sign of three"
        )
    assert len(seen.deliveries[kind]) == AT_ONCE
    assert seen.trail[kind] == [EXPECTED[kind][0]] * AT_ONCE
    assert seen.connections[kind] == AT_ONCE
    assert seen.requests[kind] == (0 if kind in UNSENT else AT_ONCE)


def test_no_redirect_is_followed(seen: Seen) -> None:
    assert seen.connections["trap"] == 1, "the event that was meant for it"


def test_all_is_over_in_time_and_memory_is_flat(seen: Seen) -> None:
    assert seen.seconds < 13
    assert seen.grown < 48 << 20
