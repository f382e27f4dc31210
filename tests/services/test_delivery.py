"""Events go out: what a receiver gets, how it ends, and that one receiver's trouble is nobody else's."""

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
from outcrop.domain.errors import BadInputError
from outcrop.net.post import PostError, PostResponse
from outcrop.services import accounts, webhooks
from outcrop.services import audit as audit_service
from outcrop.services.delivery import SLOTS, DeliveryWorker
from outcrop.store import audit
from outcrop.store import db as database
from tests.support.backend import now
from tests.support.deliveries import HOST, Office, event_of, open_office, receiver
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest
from tests.support.workers import new_database


@pytest.fixture(scope="module")
def office(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with open_office(
        new_database(cluster, f"delivery_{worker_id}"), tmp_path_factory.mktemp("office")
    ) as made:
        yield made


@pytest.fixture(scope="module")
def _hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver"), HOST, "other.example") as made:
        yield made


@pytest.fixture
def hooks(_hooks: FakeServer) -> FakeServer:
    _hooks.requests.clear()
    _hooks.respond = lambda _: FakeResponse()
    return _hooks


def test_an_event_is_posted_with_the_specified_headers_and_its_end_is_written(
    office: Office, hooks: FakeServer
) -> None:
    customer = office.customer(f"https://{HOST}/in?a=b")
    (id_,) = office.event(customer, file_path="ü/€.py")
    hooks.respond = lambda _: FakeResponse(202, body=b"thanks")
    before = datetime.now(UTC).replace(microsecond=0)
    office.deliver(hooks.egress)
    (asked,) = hooks.requests
    assert (asked.method, asked.host, asked.path, asked.query) == ("POST", HOST, "/in", "a=b")
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["User-Agent"] == "Service-Webhook/1.0"
    mac = hmac.new(customer.secret.encode(), asked.body, hashlib.sha256).hexdigest()
    assert asked.headers["X-Service-Signature"] == f"sha256={mac}"
    event = receiving.verify(asked.body, asked.headers, customer.secret)
    assert list(event) == ["event", "delivered_at", "client_slug", "finding"]
    assert (event["event"], event["client_slug"]) == ("finding.new", customer.account.slug)
    assert event["finding"]["file_path"] == "ü/€.py"
    assert event["delivered_at"].endswith("+00:00")
    assert before <= datetime.fromisoformat(event["delivered_at"]) <= datetime.now(UTC)
    assert asked.headers["webhook-id"] == str(id_)
    assert office.outcomes(customer) == [("ok", 202, None)]
    ((target, outcome, detail),) = office.trail(customer)
    assert (target, outcome) == (str(id_), "ok")
    assert detail == {
        "event": "finding.new",
        "finding": event["finding"]["id"],
        "status": 202,
        "ms": detail["ms"],
    }
    (logged,) = office.backend.run(lambda db: webhooks.list_deliveries(db, customer.account.id, limit=10))
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
    office: Office, hooks: FakeServer, status: int, outcome: str
) -> None:
    customer = office.customer()
    office.event(customer)
    hooks.respond = lambda _: FakeResponse(status, {"Location": f"https://{HOST}/elsewhere"})
    office.deliver(hooks.egress)
    assert office.outcomes(customer) == [(outcome, status, None)]
    assert [one for _, one, _ in office.trail(customer)] == [outcome]
    assert len(hooks.requests) == 1


def test_without_a_webhook_or_with_too_small_a_plan_an_event_is_dropped(
    office: Office, hooks: FakeServer
) -> None:
    none, small = office.customer(None), office.customer()
    office.event(none, 3)
    office.event(small)
    office.backend.run(
        lambda db: accounts.set_plan(db, small.account.slug, Plan.STARTER, by="test", now=now())
    )
    office.deliver(hooks.egress)
    assert office.outcomes(none) == [("dropped", None, "the account has no webhook")] * 3
    assert office.outcomes(small) == [("dropped", None, "the plan starter has no webhook")]
    assert [outcome for _, outcome, _ in office.trail(none) + office.trail(small)] == ["dropped"] * 4
    assert hooks.requests == []


def test_address_and_secret_are_those_at_the_claim_and_the_finding_that_of_the_change(
    office: Office, hooks: FakeServer
) -> None:
    customer = office.customer("https://other.example/old")
    office.event(customer, matched_text="first********")
    new = office.backend.run(
        lambda db: webhooks.save_webhook(
            db, office.backend.keys, customer.account, f"https://{HOST}/new", by="test", now=now()
        )
    )
    assert new != customer.secret
    office.deliver(hooks.egress)
    (asked,) = hooks.requests
    assert (asked.host, asked.path) == (HOST, "/new")
    assert receiving.verify(asked.body, asked.headers, new)["finding"]["matched_text"] == "first********"
    with pytest.raises(receiving.VerificationError):
        receiving.verify(asked.body, asked.headers, customer.secret)


def test_what_is_delivered_again_is_a_new_delivery_of_the_same_content(
    office: Office, hooks: FakeServer
) -> None:
    customer = office.customer()
    (first,) = office.event(customer)
    hooks.respond = lambda _: FakeResponse(500)
    office.deliver(hooks.egress)
    hooks.respond = lambda _: FakeResponse(200)
    again = office.backend.run(
        lambda db: webhooks.redeliver(db, customer.account, first, by="jo@acme.example", now=now())
    )
    office.deliver(hooks.egress)
    one, two = hooks.requests
    assert [one.headers["webhook-id"], two.headers["webhook-id"]] == [str(first), str(again)]
    before, after = event_of(one), event_of(two)
    assert before | {"delivered_at": ""} == after | {"delivered_at": ""}
    assert office.outcomes(customer) == [("failed", 500, None), ("ok", 200, None)]
    newest, _ = office.backend.run(lambda db: webhooks.list_deliveries(db, customer.account.id, limit=10))
    assert (newest.id, newest.again_of) == (again, first)
    assert office.trail(customer, "webhook.again") == [
        (str(again), "ok", {"event": "finding.new", "again_of": str(first)})
    ]


def test_a_test_event_says_that_it_is_one(office: Office, hooks: FakeServer) -> None:
    customer = office.customer()
    id_ = office.backend.run(
        lambda db: webhooks.send_test_event(db, customer.account, by="jo@acme.example", now=now())
    )
    office.deliver(hooks.egress)
    (asked,) = hooks.requests
    event = receiving.verify(asked.body, asked.headers, customer.secret)
    assert (event["event"], event["finding"]["test"], event["finding"]["id"]) == (
        "webhook.test",
        True,
        str(UUID(int=0)),
    )
    assert office.trail(customer, "webhook.test") == [(str(id_), "ok", {})]


def test_health_tells_the_last_success_and_the_failures_since(office: Office, hooks: FakeServer) -> None:
    customer = office.customer()

    def health() -> tuple[bool, int]:
        found = office.backend.run(lambda db: webhooks.get_webhook(db, customer.account.id))
        assert found is not None
        return found.health.last_success_at is not None, found.health.failures_in_a_row

    assert health() == (False, 0)
    for status, expected in ((500, (False, 1)), (404, (False, 2)), (204, (True, 0)), (400, (True, 1))):
        office.event(customer)
        hooks.respond = lambda _, status=status: FakeResponse(status)
        office.deliver(hooks.egress)
        assert health() == expected
    office.backend.run(
        lambda db: webhooks.save_webhook(
            db, office.backend.keys, customer.account, f"https://{HOST}/", by="t", now=now()
        )
    )
    assert health() == (False, 0), "another address begins anew"


def test_an_account_that_is_deleted_under_way_disturbs_nobody(office: Office, hooks: FakeServer) -> None:
    gone, stays = office.customer(), office.customer()
    office.event(gone)
    office.event(stays)

    def delete() -> None:
        office.backend.run(lambda db: accounts.delete_account(db, gone.account.slug))

    def respond(asked: ReceivedRequest) -> FakeResponse:
        if event_of(asked)["client_slug"] == gone.account.slug:
            with ThreadPoolExecutor(1) as aside:
                aside.submit(delete).result()
        return FakeResponse()

    hooks.respond = respond
    office.deliver(hooks.egress)
    assert office.outcomes(stays) == [("ok", 200, None)]
    assert office.trail(gone) == []


# --- who gets a slot


def test_a_receiver_that_hangs_delays_nobody_else(office: Office) -> None:
    """Many more events than slots wait for receivers that never answer; another account's event goes out at once."""
    hanging = [office.customer(f"https://hang{n}.example/") for n in range(3)]
    for customer in hanging:
        office.event(customer, 60)
    sent: list[float] = []
    out = asyncio.Event()

    async def post(url: str, headers: object, body: bytes, **limits: float) -> PostResponse:
        if "hang" in url:
            await asyncio.sleep(3)
            raise PostError("no complete response")
        sent.append(time.monotonic())
        out.set()
        return PostResponse(200, b"")

    async def main() -> float:
        async with database.open_pool(office.url, size=4, statement_timeout=20) as pool:
            stop = asyncio.Event()
            courier = asyncio.create_task(DeliveryWorker(pool, office.backend.keys, post, slots=40).run(stop))
            await asyncio.sleep(0.5)  # all that may hang does
            quick = await asyncio.to_thread(office.customer, "https://quick.example/")
            began = time.monotonic()
            await asyncio.to_thread(office.event, quick)
            await asyncio.wait_for(out.wait(), 5)
            stop.set()
            await courier
            return sent[0] - began

    assert asyncio.run(main()) < 1.0
    office.backend.sql("UPDATE outbox SET claimed_at = now(), outcome = 'dropped' WHERE outcome IS NULL")


def test_a_worker_that_is_told_to_stop_writes_what_it_knows(office: Office) -> None:
    customer = office.customer()
    office.event(customer, 2)
    began: list[str] = []
    both = asyncio.Event()

    async def post(url: str, headers: object, body: bytes, **limits: float) -> PostResponse:
        began.append(url)
        if len(began) == 2:
            both.set()
        await asyncio.sleep(1 if len(began) == 1 else 60)
        return PostResponse(200, b"")

    async def main() -> float:
        async with database.open_pool(office.url, size=4, statement_timeout=20) as pool:
            stop = asyncio.Event()
            courier = asyncio.create_task(DeliveryWorker(pool, office.backend.keys, post).run(stop))
            await asyncio.wait_for(both.wait(), 5)
            stop.set()
            at = time.monotonic()
            await courier
            return time.monotonic() - at

    assert asyncio.run(main()) < 7
    assert office.outcomes(customer) == [
        ("ok", 200, None),
        ("unknown", None, "the worker was stopped before a response arrived"),
    ]


def test_a_secret_that_cannot_be_opened_is_told_and_sent_nowhere(office: Office, hooks: FakeServer) -> None:
    customer = office.customer()
    office.backend.sql(
        "UPDATE webhooks SET id = gen_random_uuid() WHERE account_id = %s", customer.account.id
    )
    office.event(customer)
    with capture_logs() as logs:
        office.deliver(hooks.egress)
    assert office.outcomes(customer) == [("unknown", None, "sending failed (InvalidTag)")]
    assert hooks.requests == []
    assert customer.secret not in str(logs)


def test_a_claim_stays_cheap_with_fifty_thousand_waiting(office: Office) -> None:
    from outcrop.store import outbox  # noqa: PLC0415

    customers = [office.customer() for _ in range(20)]
    ids = [customer.account.id for customer in customers]
    office.backend.sql(
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

    took = office.backend.run(claims, transaction=False)
    office.backend.sql("DELETE FROM outbox WHERE account_id = ANY(%s)", ids)
    assert took < 2.0, "20 claims of 100: milliseconds each"


def test_the_log_goes_thirty_days_back_and_the_trail_for_ever(office: Office, hooks: FakeServer) -> None:
    customer = office.customer()
    old, young = office.event(customer, 2)
    office.deliver(hooks.egress)
    (waits,) = office.event(customer)
    office.backend.sql("UPDATE outbox SET claimed_at = now() - interval '31 days' WHERE id = %s", old)
    office.backend.sql("UPDATE outbox SET claimed_at = now() - interval '29 days' WHERE id = %s", young)

    async def forget() -> int:
        async with database.open_pool(office.url, size=1, statement_timeout=20) as pool:
            return await webhooks.delete_old_deliveries(pool)

    assert asyncio.run(forget()) == 1
    left = office.backend.run(lambda db: webhooks.list_deliveries(db, customer.account.id, limit=10))
    assert [delivery.id for delivery in left] == [waits, young]
    assert {target for target, _, _ in office.trail(customer)} == {str(old), str(young)}
    office.deliver(hooks.egress)


def test_the_trail_is_read_in_pages_newest_first(office: Office) -> None:
    customer = office.customer()
    for number in range(5):
        line = audit.AuditLine(now(), "jo", "key.create" if number % 2 else "finding.resolve", str(number))
        office.backend.run(lambda db, line=line: audit.append(db, customer.account.id, line))

    def page(
        wanted: AuditFilter | None = None, before: int | None = None
    ) -> list[tuple[int, audit.AuditLine]]:
        return office.backend.run(
            lambda db: audit_service.list_trail(db, customer.account, wanted, limit=2, before=before)
        )

    first = page()
    assert [line.target for _, line in first] == ["4", "3"]
    assert [line.target for _, line in page(before=first[-1][0])] == ["2", "1"]
    assert [line.target for _, line in page(AuditFilter("key"))] == ["3", "1"]
    with pytest.raises(BadInputError):
        page(AuditFilter(outcome="fine"))
