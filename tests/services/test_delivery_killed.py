"""Test that killed delivery workers send no event twice, and that every event gets an outcome."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.clock import now
from outcrop.services.delivery import end_orphaned_deliveries
from tests.support.databases import migrated_database
from tests.support.deliveries import HOST, DeliveryTestbed, open_testbed, receiver
from tests.support.fake_https import FakeResponse, FakeServer
from tests.support.killed_workers import POINTS
from tests.support.workers import until

UNKNOWN = ("unknown", None, "the worker died before a response arrived")
OK = ("ok", 200, None)
# point of the kill -> (outcome of the event, number of complete requests that the receiver got)
EXPECTED = {
    "while_claiming": (OK, 1),  # nothing was claimed: another worker sends it
    "when_claimed": (UNKNOWN, 0),
    "when_connected": (UNKNOWN, 0),
    "while_sending": (UNKNOWN, 0),
    "when_sent": (UNKNOWN, 1),
    "when_answered": (UNKNOWN, 1),
    "while_writing": (UNKNOWN, 1),
    "when_written": (OK, 1),
}
# Maximum number of kills, number of events, maximum seconds, and average milliseconds between two kills.
# The long version: KILLS=2000,24000,3600,3
KILLS, EVENTS, SECONDS, PAUSE = (int(part) for part in os.environ.get("KILLS", "200,600,20,60").split(","))


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver"), HOST) as opened:
        yield opened


@pytest.fixture(scope="module")
def testbed(
    cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeliveryTestbed]:
    with open_testbed(
        migrated_database(cluster, f"killed_{worker_id}"), tmp_path_factory.mktemp("testbed")
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def parent(testbed: DeliveryTestbed, hooks: FakeServer) -> Iterator[Callable[[str], Any]]:
    command = [
        sys.executable,
        "-m",
        "tests.support.killed_workers",
        testbed.url,
        str(hooks.port),
        str(hooks.ca),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:

        def send_command(line: str) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield send_command
        process.stdin.close()  # type: ignore[union-attr]


def end_open_deliveries(testbed: DeliveryTestbed) -> bool:
    """End the deliveries of dead workers; return whether none is open."""
    testbed.backend.run(lambda db: end_orphaned_deliveries(db, own=0, now=now(), after=0))
    return testbed.backend.sql("SELECT 1 FROM outbox WHERE claimed_at IS NOT NULL AND outcome IS NULL") == []


def test_every_point_has_an_expectation() -> None:
    assert set(EXPECTED) == set(POINTS)


@pytest.mark.parametrize("point", EXPECTED)
def test_a_worker_killed_at_any_point_sends_nothing_twice(
    testbed: DeliveryTestbed, hooks: FakeServer, parent: Callable[[str], Any], point: str
) -> None:
    customer = testbed.customer()
    (id_,) = testbed.event(customer)
    hooks.requests.clear()
    hooks.respond = lambda _: FakeResponse(delay=1.0 if point == "when_sent" else 0.0)
    assert parent(f"die {point}") is True
    until(lambda: end_open_deliveries(testbed), "the open deliveries to be ended")
    hooks.respond = lambda _: FakeResponse()
    testbed.deliver(hooks.egress)  # the next worker
    expected, requests = EXPECTED[point]
    assert testbed.outcomes(customer) == [expected]
    assert [(target, outcome) for target, outcome, _ in testbed.trail(customer)] == [(str(id_), expected[0])]
    assert [request.headers["webhook-id"] for request in hooks.requests] == [str(id_)] * requests


def test_workers_killed_at_random_send_nothing_twice_and_lose_no_event(
    testbed: DeliveryTestbed,
    hooks: FakeServer,
    parent: Callable[[str], Any],
    record_testsuite_property: Callable[[str, str], None],
) -> None:
    customers = [testbed.customer() for _ in range(8)]
    ids = {str(id_) for customer in customers for id_ in testbed.event(customer, EVENTS // 8)}
    hooks.requests.clear()
    hooks.respond = lambda _: FakeResponse(delay=0.01)
    result = parent("race " + json.dumps({"kills": KILLS, "seconds": SECONDS, "pause": PAUSE / 1000}))
    time.sleep(0.2)
    until(lambda: end_open_deliveries(testbed), "the open deliveries to be ended")
    received = Counter(request.headers["webhook-id"] for request in hooks.requests)
    accounts = [customer.account.id for customer in customers]
    lines = testbed.backend.sql(
        "SELECT target, outcome FROM audit WHERE account_id = ANY(%s) AND action = 'webhook.delivery'",
        accounts,
    )
    assert result["killed"] > 10
    assert max(received.values()) == 1, "no event came twice"
    assert len(lines) == len(ids), "every event has one audit line"
    outcomes = dict(lines)
    record_testsuite_property(
        "kills", f"{result['killed']} of workers, {len(ids)} events: {dict(Counter(outcomes.values()))}"
    )
    assert set(outcomes) == ids
    assert set(received) <= ids
    assert set(outcomes.values()) <= {"ok", "unknown"}
    assert {id_ for id_, outcome in outcomes.items() if outcome == "ok"} <= set(received), (
        "every event with the outcome ok was received"
    )
    assert Counter(outcomes.values())["ok"] > len(ids) / 10, "the workers delivered events between two kills"
