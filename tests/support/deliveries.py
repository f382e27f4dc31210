"""Deliver webhook events in tests, to a receiver with real TLS."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from outcrop.domain.account import Account, Plan
from outcrop.domain.clock import now
from outcrop.domain.events import Event, EventType
from outcrop.net.guard import Egress
from outcrop.net.post import PostClient
from outcrop.runtime import prepare_database
from outcrop.services import accounts, webhooks
from outcrop.services.delivery import SLOTS, DeliveryWorker
from outcrop.settings import SecretText, Settings
from outcrop.store import db as database
from outcrop.store import outbox
from outcrop.store.db import Connection
from tests.support.backend import Backend
from tests.support.factories import make_line
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https

SECRET_KEY = "a key for the tests only, no secret"
HOST = "hooks.example"


@dataclass
class Customer:
    """An account and the secret of its webhook."""

    account: Account
    secret: str = field(repr=False)


@dataclass
class DeliveryTestbed:
    """A database of its own for tests of deliveries, with helpers to add accounts and events."""

    backend: Backend

    @property
    def url(self) -> str:
        assert self.backend.settings.database_url is not None
        return self.backend.settings.database_url

    def customer(self, url: str | None = f"https://{HOST}/in", plan: Plan = Plan.GROWTH) -> Customer:
        """Create an account, with a webhook if there is a URL."""
        slug = f"w-{uuid4().hex[:12]}"

        async def make(db: Connection) -> Customer:
            account = await accounts.create_account(
                db, slug=slug, plan=plan, email=f"{slug}@example.com", by="test", now=now()
            )
            secret = (
                ""
                if url is None
                else await webhooks.save_webhook(db, self.backend.keys, account, url, by="test", now=now())
            )
            return Customer(account, secret)

        return self.backend.run(make)

    def event(self, customer: Customer, number: int = 1, **fields: Any) -> list[UUID]:
        """Queue events; return their ids."""
        ids = [uuid4() for _ in range(number)]

        async def write(db: Connection) -> None:
            for id_ in ids:
                finding = make_line(**fields)
                event = Event(EventType.NEW, UUID(finding["id"]), finding)
                await outbox.append(db, customer.account.id, event, event_id=id_, now=now())

        self.backend.run(write)
        return ids

    def deliver(self, egress: Egress, *, seconds: float = 120, slots: int = SLOTS) -> None:
        """Run a delivery worker until no delivery is open."""
        asyncio.run(deliver_all(self.url, self.backend.keys, egress, seconds=seconds, slots=slots))

    def outcomes(self, customer: Customer) -> list[tuple[str, int | None, str | None]]:
        """Return (outcome, status, reason) of all deliveries, oldest first."""
        return self.backend.sql(
            "SELECT outcome, status, reason FROM outbox WHERE account_id = %s ORDER BY seq",
            customer.account.id,
        )

    def trail(
        self, customer: Customer, action: str = "webhook.delivery"
    ) -> list[tuple[str, str, dict[str, Any]]]:
        """Return (target, outcome, detail) of the audit lines with this action."""
        rows = self.backend.sql(
            "SELECT target, outcome, detail FROM audit WHERE account_id = %s AND action = %s ORDER BY id",
            customer.account.id,
            action,
        )
        return [(target, outcome, detail) for target, outcome, detail in rows]


COUNT_OPEN = "SELECT count(*) FROM outbox WHERE outcome IS NULL"


async def deliver_all(
    url: str, keys: Any, egress: Egress, *, seconds: float = 120, slots: int = SLOTS
) -> None:
    """Run a delivery worker until no delivery is open, for at most `seconds`."""
    async with database.open_pool(url, size=4, statement_timeout=20) as pool:
        stop = asyncio.Event()
        worker = asyncio.create_task(
            DeliveryWorker(pool, keys, PostClient(egress).post, slots=slots).run(stop)
        )
        try:
            async with asyncio.timeout(seconds):
                while True:
                    async with pool.connection() as db:
                        (open_deliveries,) = await database.fetch_single_row(db, COUNT_OPEN)
                    if not open_deliveries:
                        return
                    await asyncio.sleep(0.02)
        finally:
            stop.set()
            await worker


@contextmanager
def open_testbed(url: str, folder: Path) -> Iterator[DeliveryTestbed]:
    """Open a database for tests of deliveries; migrate it if it is empty."""
    settings = Settings(database_url=url, data_dir=folder, secret_key=SecretText(SECRET_KEY), validate_="off")
    with Backend(settings, asyncio.run(prepare_database(settings, url)), "http://127.0.0.1") as backend:
        yield DeliveryTestbed(backend)


@contextmanager
def receiver(folder: Path, *hosts: str) -> Iterator[FakeServer]:
    """Run a server that answers 200 to every request and keeps the requests."""
    with serve_https(folder, hosts or (HOST,), lambda _: FakeResponse()) as server:
        yield server


def parse_event(request: ReceivedRequest) -> dict[str, Any]:
    """Return the event in the body of a request."""
    event: dict[str, Any] = json.loads(request.body)
    return event
