"""Whatever is killed, and when: no event is sent twice, and what became of each is written."""

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

from outcrop.services.delivery import end_orphaned_deliveries
from tests.support.backend import now
from tests.support.couriers import POINTS
from tests.support.deliveries import HOST, Office, open_office, receiver
from tests.support.fake_https import FakeResponse, FakeServer
from tests.support.workers import new_database, until

UNKNOWN = ("unknown", None, "the worker died before a response arrived")
OK = ("ok", 200, None)
# What became of the event at each point, and how many whole requests the receiver has seen.
EXPECTED = {
    "while_claiming": (OK, 1),  # nothing was claimed: another one sends it
    "when_claimed": (UNKNOWN, 0),
    "when_connected": (UNKNOWN, 0),
    "while_sending": (UNKNOWN, 0),
    "when_sent": (UNKNOWN, 1),
    "when_answered": (UNKNOWN, 1),
    "while_writing": (UNKNOWN, 1),
    "when_written": (OK, 1),
}
# At most so many kills, so many events, so many seconds of killing, and milliseconds between two kills on average.
# The whole trial: KILLS=2000,24000,3600,3
KILLS, EVENTS, SECONDS, PAUSE = (int(part) for part in os.environ.get("KILLS", "400,1200,20,60").split(","))


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver"), HOST) as made:
        yield made


@pytest.fixture(scope="module")
def office(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with open_office(new_database(cluster, f"killed_{worker_id}"), tmp_path_factory.mktemp("office")) as made:
        yield made


@pytest.fixture(scope="module")
def parent(office: Office, hooks: FakeServer) -> Iterator[Callable[[str], Any]]:
    command = [sys.executable, "-m", "tests.support.couriers", office.url, str(hooks.port), str(hooks.ca)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:

        def ask(line: str) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()  # type: ignore[union-attr]


def given_up(office: Office) -> bool:
    """Give up what the dead have left: their connections are gone a moment after them."""
    office.backend.run(lambda db: end_orphaned_deliveries(db, own=0, now=now(), after=0))
    return office.backend.sql("SELECT 1 FROM outbox WHERE claimed_at IS NOT NULL AND outcome IS NULL") == []


def test_every_point_is_tried() -> None:
    assert set(EXPECTED) == set(POINTS)


@pytest.mark.parametrize("point", EXPECTED)
def test_a_courier_that_is_killed_at_a_point_of_the_delivery_sends_nothing_twice(
    office: Office, hooks: FakeServer, parent: Callable[[str], Any], point: str
) -> None:
    customer = office.customer()
    (id_,) = office.event(customer)
    hooks.requests.clear()
    hooks.respond = lambda _: FakeResponse(delay=1.0 if point == "when_sent" else 0.0)
    assert parent(f"die {point}") is True
    until(lambda: given_up(office), "what is left open to be given up")
    hooks.respond = lambda _: FakeResponse()
    office.deliver(hooks.egress)  # whoever comes after
    expected, requests = EXPECTED[point]
    assert office.outcomes(customer) == [expected]
    assert [(target, outcome) for target, outcome, _ in office.trail(customer)] == [(str(id_), expected[0])]
    assert [asked.headers["webhook-id"] for asked in hooks.requests] == [str(id_)] * requests


def test_couriers_that_are_killed_at_random_send_nothing_twice_and_account_for_everything(
    office: Office,
    hooks: FakeServer,
    parent: Callable[[str], Any],
    record_testsuite_property: Callable[[str, str], None],
) -> None:
    customers = [office.customer() for _ in range(8)]
    ids = {str(id_) for customer in customers for id_ in office.event(customer, EVENTS // 8)}
    hooks.requests.clear()
    hooks.respond = lambda _: FakeResponse(delay=0.01)
    told = parent("race " + json.dumps({"kills": KILLS, "seconds": SECONDS, "pause": PAUSE / 1000}))
    time.sleep(0.2)
    until(lambda: given_up(office), "what is left open to be given up")
    received = Counter(asked.headers["webhook-id"] for asked in hooks.requests)
    accounts = [customer.account.id for customer in customers]
    lines = office.backend.sql(
        "SELECT target, outcome FROM audit WHERE account_id = ANY(%s) AND action = 'webhook.delivery'",
        accounts,
    )
    assert told["killed"] > 10
    assert max(received.values()) == 1, "none came twice"
    assert len(lines) == len(ids), "each is written once"
    outcomes = dict(lines)
    record_testsuite_property(
        "kills", f"{told['killed']} of couriers, {len(ids)} events: {dict(Counter(outcomes.values()))}"
    )
    assert set(outcomes) == ids
    assert set(received) <= ids
    assert set(outcomes.values()) <= {"ok", "unknown"}
    assert {id_ for id_, outcome in outcomes.items() if outcome == "ok"} <= set(received), (
        "what is called delivered was"
    )
    assert Counter(outcomes.values())["ok"] > len(ids) / 10, "they got something done between two deaths"
