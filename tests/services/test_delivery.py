"""Test the delivery of events: requests, outcomes, and that a slow receiver delays no other."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from outcrop import webhooks as receiving
from outcrop.domain.account import WEBHOOK_PLANS, Plan
from outcrop.domain.audit import AuditFilter
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.net.post import PostError, PostResponse
from outcrop.services import accounts, webhooks
from outcrop.services import audit as audit_service
from outcrop.services.delivery import SLOTS, DeliveryWorker
from outcrop.store import audit
from outcrop.store import db as database
from tests.support.databases import migrated_database
from tests.support.deliveries import HOST, DeliveryTestbed, open_testbed, parse_event, receiver
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest


@pytest.fixture(scope="module")
def testbed(
    cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeliveryTestbed]:
    with open_testbed(
        migrated_database(cluster, f"delivery_{worker_id}"), tmp_path_factory.mktemp("testbed")
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def _hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver"), HOST, "other.example") as opened:
        yield opened


@pytest.fixture
def hooks(_hooks: FakeServer) -> FakeServer:
    _hooks.requests.clear()
    _hooks.respond = lambda _: FakeResponse()
    return _hooks


def test_an_event_is_posted_with_the_specified_headers_and_its_outcome_is_recorded(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer(f"https://{HOST}/in?a=b")
    (id_,) = testbed.event(customer, file_path="ü/€.py")
    hooks.respond = lambda _: FakeResponse(202, body=b"thanks")
    before = datetime.now(UTC).replace(microsecond=0)
    testbed.deliver(hooks.egress)
    (request,) = hooks.requests
    assert (request.method, request.host, request.path, request.query) == ("POST", HOST, "/in", "a=b")
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"] == "Service-Webhook/1.0"
    mac = hmac.new(customer.secret.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-Service-Signature"] == f"sha256={mac}"
    event = receiving.verify(request.body, request.headers, customer.secret)
    assert list(event) == ["event", "delivered_at", "client_slug", "finding"]
    assert (event["event"], event["client_slug"]) == ("finding.new", customer.account.slug)
    assert event["finding"]["file_path"] == "ü/€.py"
    assert event["delivered_at"].endswith("+00:00")
    assert before <= datetime.fromisoformat(event["delivered_at"]) <= datetime.now(UTC)
    assert request.headers["webhook-id"] == str(id_)
    assert testbed.outcomes(customer) == [("ok", 202, None)]
    ((target, outcome, detail),) = testbed.trail(customer)
    assert (target, outcome) == (str(id_), "ok")
    assert detail == {
        "event": "finding.new",
        "finding": event["finding"]["id"],
        "status": 202,
        "ms": detail["ms"],
    }
    (logged,) = testbed.backend.run(lambda db: webhooks.list_deliveries(db, customer.account.id, limit=10))
    assert (logged.id, logged.state, logged.status, logged.answer, logged.again_of) == (
        id_,
        "ok",
        202,
        "thanks",
        None,
    )


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "ok"), (299, "ok"), (300, "failed"), (302, "failed"), (404, "failed"), (500, "failed")],
)
def test_success_is_any_2xx_and_nothing_is_sent_twice(
    testbed: DeliveryTestbed, hooks: FakeServer, status: int, outcome: str
) -> None:
    customer = testbed.customer()
    testbed.event(customer)
    hooks.respond = lambda _: FakeResponse(status, {"Location": f"https://{HOST}/elsewhere"})
    testbed.deliver(hooks.egress)
    assert testbed.outcomes(customer) == [(outcome, status, None)]
    assert [recorded for _, recorded, _ in testbed.trail(customer)] == [outcome]
    assert len(hooks.requests) == 1


def test_an_event_is_dropped_without_a_webhook_or_a_plan_that_includes_it(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    without_webhook, starter = testbed.customer(None), testbed.customer()
    testbed.event(without_webhook, 3)
    testbed.event(starter)
    testbed.backend.run(
        lambda db: accounts.set_plan(db, starter.account.slug, Plan.STARTER, by="test", now=now())
    )
    testbed.deliver(hooks.egress)
    assert testbed.outcomes(without_webhook) == [("dropped", None, "the account has no webhook")] * 3
    assert testbed.outcomes(starter) == [("dropped", None, "the plan starter has no webhook")]
    assert [outcome for _, outcome, _ in testbed.trail(without_webhook) + testbed.trail(starter)] == [
        "dropped"
    ] * 4
    assert hooks.requests == []


def test_url_and_secret_are_read_at_the_claim_and_the_finding_at_the_change(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer("https://other.example/old")
    testbed.event(customer, matched_text="first********")
    new = testbed.backend.run(
        lambda db: webhooks.save_webhook(
            db, testbed.backend.keys, customer.account, f"https://{HOST}/new", by="test", now=now()
        )
    )
    assert new != customer.secret
    testbed.deliver(hooks.egress)
    (request,) = hooks.requests
    assert (request.host, request.path) == (HOST, "/new")
    assert receiving.verify(request.body, request.headers, new)["finding"]["matched_text"] == "first********"
    with pytest.raises(receiving.VerificationError):
        receiving.verify(request.body, request.headers, customer.secret)


def test_a_repeated_delivery_is_new_and_has_the_same_content(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer()
    (first,) = testbed.event(customer)
    hooks.respond = lambda _: FakeResponse(500)
    testbed.deliver(hooks.egress)
    hooks.respond = lambda _: FakeResponse(200)
    repeat_id = testbed.backend.run(
        lambda db: webhooks.redeliver(db, customer.account, first, by="jo@acme.example", now=now())
    )
    testbed.deliver(hooks.egress)
    first_request, second_request = hooks.requests
    assert [first_request.headers["webhook-id"], second_request.headers["webhook-id"]] == [
        str(first),
        str(repeat_id),
    ]
    before, after = parse_event(first_request), parse_event(second_request)
    assert before | {"delivered_at": ""} == after | {"delivered_at": ""}
    assert testbed.outcomes(customer) == [("failed", 500, None), ("ok", 200, None)]
    newest, _ = testbed.backend.run(lambda db: webhooks.list_deliveries(db, customer.account.id, limit=10))
    assert (newest.id, newest.again_of) == (repeat_id, first)
    assert testbed.trail(customer, "webhook.again") == [
        (str(repeat_id), "ok", {"event": "finding.new", "again_of": str(first)})
    ]


def test_a_test_event_is_marked_as_test(testbed: DeliveryTestbed, hooks: FakeServer) -> None:
    customer = testbed.customer()
    id_ = testbed.backend.run(
        lambda db: webhooks.send_test_event(db, customer.account, by="jo@acme.example", now=now())
    )
    testbed.deliver(hooks.egress)
    (request,) = hooks.requests
    event = receiving.verify(request.body, request.headers, customer.secret)
    assert (event["event"], event["finding"]["test"], event["finding"]["id"]) == (
        "webhook.test",
        True,
        str(UUID(int=0)),
    )
    assert testbed.trail(customer, "webhook.test") == [(str(id_), "ok", {})]


def test_health_has_the_last_success_and_the_failures_since_then(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer()

    def health() -> tuple[bool, int]:
        found = testbed.backend.run(
            lambda db: webhooks.get_webhook(db, testbed.backend.keys, customer.account.id)
        )
        assert found is not None
        return found.health.last_success_at is not None, found.health.failures_in_a_row

    assert health() == (False, 0)
    for status, expected in ((500, (False, 1)), (404, (False, 2)), (204, (True, 0)), (400, (True, 1))):
        testbed.event(customer)
        hooks.respond = lambda _, status=status: FakeResponse(status)
        testbed.deliver(hooks.egress)
        assert health() == expected
    testbed.backend.run(
        lambda db: webhooks.save_webhook(
            db, testbed.backend.keys, customer.account, f"https://{HOST}/", by="t", now=now()
        )
    )
    assert health() == (False, 0), "a new URL starts without history"


def test_deleting_an_account_during_its_delivery_affects_no_other(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    deleted, other = testbed.customer(), testbed.customer()
    testbed.event(deleted)
    testbed.event(other)

    def delete() -> None:
        testbed.backend.run(lambda db: accounts.delete_account(db, deleted.account.slug))

    def respond(request: ReceivedRequest) -> FakeResponse:
        if parse_event(request)["client_slug"] == deleted.account.slug:
            with ThreadPoolExecutor(1) as executor:
                executor.submit(delete).result()
        return FakeResponse()

    hooks.respond = respond
    testbed.deliver(hooks.egress)
    assert testbed.outcomes(other) == [("ok", 200, None)]
    assert testbed.trail(deleted) == []


# --- slots


def test_a_hanging_receiver_delays_no_other(testbed: DeliveryTestbed) -> None:
    """Queue more events than slots for receivers that hang; another account's event must be sent at once."""
    hanging = [testbed.customer(f"https://hang{n}.example/") for n in range(3)]
    for customer in hanging:
        testbed.event(customer, 60)
    out = asyncio.Event()

    async def post(url: str, headers: object, body: bytes, **limits: float) -> PostResponse:
        if "hang" in url:
            await out.wait()
            raise PostError("no complete response")
        out.set()
        return PostResponse(200, b"")

    async def main() -> None:
        async with database.open_pool(testbed.url, size=4, statement_timeout=20) as pool:
            stop = asyncio.Event()
            worker = asyncio.create_task(DeliveryWorker(pool, testbed.backend.keys, post, slots=40).run(stop))
            await asyncio.sleep(0.5)  # all slots that can hang do so
            quick = await asyncio.to_thread(testbed.customer, "https://quick.example/")
            await asyncio.to_thread(testbed.event, quick)
            await asyncio.wait_for(out.wait(), 60)  # the others hang until then
            stop.set()
            await worker

    asyncio.run(main())
    assert out.is_set(), "the other account's event was sent"
    testbed.backend.sql("UPDATE outbox SET claimed_at = now(), outcome = 'dropped' WHERE outcome IS NULL")


def test_a_stopped_worker_saves_all_outcomes(testbed: DeliveryTestbed) -> None:
    customer = testbed.customer()
    testbed.event(customer, 2)
    began: list[str] = []
    both = asyncio.Event()

    async def post(url: str, headers: object, body: bytes, **limits: float) -> PostResponse:
        began.append(url)
        if len(began) == 2:
            both.set()
        await asyncio.sleep(1 if len(began) == 1 else 600)
        return PostResponse(200, b"")

    async def main() -> float:
        async with database.open_pool(testbed.url, size=4, statement_timeout=20) as pool:
            stop = asyncio.Event()
            worker = asyncio.create_task(DeliveryWorker(pool, testbed.backend.keys, post).run(stop))
            await asyncio.wait_for(both.wait(), 60)
            stop.set()
            at = time.monotonic()
            await worker
            return time.monotonic() - at

    assert asyncio.run(main()) < 60
    assert testbed.outcomes(customer) == [
        ("ok", 200, None),
        ("unknown", None, "the worker was stopped before a response arrived"),
    ]


def test_an_event_is_not_sent_if_its_secret_cannot_be_decrypted(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer()
    testbed.backend.sql(
        "UPDATE webhooks SET id = gen_random_uuid() WHERE account_id = %s", customer.account.id
    )
    testbed.event(customer)
    with capture_logs() as logs:
        testbed.deliver(hooks.egress)
    assert testbed.outcomes(customer) == [("unknown", None, "sending failed (DamagedValueError)")]
    assert hooks.requests == []
    assert customer.secret not in str(logs)


def test_a_claim_is_fast_with_fifty_thousand_waiting_events(testbed: DeliveryTestbed) -> None:
    from outcrop.store import outbox  # noqa: PLC0415

    customers = [testbed.customer() for _ in range(20)]
    ids = [customer.account.id for customer in customers]
    testbed.backend.sql(
        """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at)
           SELECT gen_random_uuid(), (%s::int[])[1 + n %% 20], 'finding.new', gen_random_uuid(), '{}', now()
           FROM generate_series(1, 50000) n""",
        ids,
    )

    async def claims(db: database.Connection) -> float:
        began = time.perf_counter()
        for _ in range(20):
            waiting = await outbox.select_waiting_accounts(db, after=0, limit=SLOTS)
            assert set(ids) <= set(waiting)
            async with db.transaction():
                claimed = await outbox.claim_events(db, 1, dict.fromkeys(ids, 5), WEBHOOK_PLANS)
            assert len(claimed) == 100
        return time.perf_counter() - began

    took = testbed.backend.run(claims, transaction=False)
    testbed.backend.sql("DELETE FROM outbox WHERE account_id = ANY(%s)", ids)
    assert took < 60, "20 claims of 100 events take milliseconds each; a busy machine is slow"


def test_deliveries_are_deleted_after_thirty_days_but_not_their_audit_lines(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer()
    old, recent = testbed.event(customer, 2)
    testbed.deliver(hooks.egress)
    (waiting,) = testbed.event(customer)
    testbed.backend.sql("UPDATE outbox SET claimed_at = now() - interval '31 days' WHERE id = %s", old)
    testbed.backend.sql("UPDATE outbox SET claimed_at = now() - interval '29 days' WHERE id = %s", recent)

    async def delete_old() -> int:
        async with database.open_pool(testbed.url, size=1, statement_timeout=20) as pool:
            return await webhooks.delete_old_deliveries(pool)

    assert asyncio.run(delete_old()) == 1
    remaining = testbed.backend.run(lambda db: webhooks.list_deliveries(db, customer.account.id, limit=10))
    assert [delivery.id for delivery in remaining] == [waiting, recent]
    assert {target for target, _, _ in testbed.trail(customer)} == {str(old), str(recent)}
    testbed.deliver(hooks.egress)


def test_the_audit_trail_is_paged_newest_first(testbed: DeliveryTestbed) -> None:
    customer = testbed.customer()
    for number in range(5):
        line = audit.AuditLine(now(), "jo", "key.create" if number % 2 else "finding.resolve", str(number))
        testbed.backend.run(lambda db, line=line: audit.append(db, customer.account.id, line))

    def page(
        wanted: AuditFilter | None = None, before: int | None = None
    ) -> list[tuple[int, audit.AuditLine]]:
        return testbed.backend.run(
            lambda db: audit_service.list_trail(db, customer.account, wanted, limit=2, before=before)
        )

    first = page()
    assert [line.target for _, line in first] == ["4", "3"]
    assert [line.target for _, line in page(before=first[-1][0])] == ["2", "1"]
    assert [line.target for _, line in page(AuditFilter("key"))] == ["3", "1"]
    with pytest.raises(BadInputError):
        page(AuditFilter(outcome="fine"))
