"""Test the count of deliveries in a minute, the ids that are known, and the comparison that follows."""

import asyncio
import json
from uuid import UUID

import pytest
import structlog

from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.domain.push import HookHost
from outcrop.limits import HOOK_DELIVERIES
from outcrop.services.hooks import manage
from outcrop.services.hooks.payload import TooManyValuesError, read_payload
from outcrop.services.hooks.receive import HookDelivery, KnownHook, accept_delivery, find_hook, read_delivery
from outcrop.store import hooks
from outcrop.store.db import Connection
from tests.support.backend import Backend, Tenant
from tests.support.pushes import event_headers, open_sender, payload, stored_pushes


def known(backend: Backend, tenant: Tenant, host: HookHost = HookHost.GITHUB) -> KnownHook:
    """Return a new hook as a sender's token finds it."""
    token = open_sender(backend, tenant, host).path.rpartition("/")[2]
    hook = backend.run(lambda db: find_hook(db, backend.keys, host, token))
    assert hook is not None
    return hook


def delivery(hook: KnownHook, id_: str | None) -> HookDelivery:
    body = json.dumps(payload(hook.host)).encode()
    read = read_delivery(hook, {n.lower(): v for n, v in event_headers(hook.host).items()}, body)
    return HookDelivery(id_, read.pushes)


def test_deliveries_beyond_600_in_a_minute_are_refused_and_start_a_comparison(backend: Backend) -> None:
    """The minute is made longer, as a busy machine may need it for so many deliveries."""
    tenant = backend.tenant()
    hook = known(backend, tenant)
    empty = HookDelivery(None, ())

    async def flood(db: Connection) -> list[int]:
        waits = [await accept_delivery(db, backend.keys, hook, empty)]
        await db.execute("UPDATE hook_windows SET started_at = started_at + interval '1 hour'")
        return waits + [await accept_delivery(db, backend.keys, hook, empty) for _ in range(2_000)]

    with structlog.testing.capture_logs() as logs:
        waits = backend.run(flood)
    assert waits[:HOOK_DELIVERIES] == [0] * HOOK_DELIVERIES
    assert all(seconds >= 1 for seconds in waits[HOOK_DELIVERIES:])
    assert [entry["event"] for entry in logs] == ["hook_limited"]  # once, not for each refused delivery
    assert backend.run(lambda db: accept_delivery(db, backend.keys, hook, delivery(hook, "x"))) > 0
    assert stored_pushes(backend, tenant) == 0
    (record,) = backend.run(lambda db: manage.list_hooks(db, tenant.account))
    assert record.is_behind

    def due() -> list[UUID]:
        rows = backend.run(lambda db: hooks.lock_behind(db, limit=100))
        return [hook_id for account_id, hook_id, _ in rows if account_id == tenant.account.id]

    assert due() == []  # the minute is not over
    for column in ("started_at", "compare_at"):
        backend.sql(
            f"UPDATE hook_windows SET {column} = {column} - interval '2 hours' WHERE hook_id = %s", hook.id
        )
    assert due() == [hook.id]
    assert due() == []  # once
    assert backend.run(lambda db: accept_delivery(db, backend.keys, hook, delivery(hook, "x"))) == 0
    assert stored_pushes(backend, tenant) == 1


def test_the_limit_is_exact_with_many_connections_and_belongs_to_one_hook(backend: Backend) -> None:
    tenant = backend.tenant()
    hook, other = known(backend, tenant), known(backend, tenant)

    async def accept(db: Connection, target: KnownHook) -> int:
        return await accept_delivery(db, backend.keys, target, HookDelivery(None, ()), limit=30)

    async def main() -> list[int]:
        from outcrop.store.db import connect  # noqa: PLC0415

        async def some() -> list[int]:
            async with await connect(str(backend.settings.database_url)) as db:
                return [await accept(db, hook) for _ in range(20)]

        return [wait for waits in await asyncio.gather(*(some() for _ in range(4))) for wait in waits]

    assert asyncio.run(main()).count(0) == 30
    assert backend.run(lambda db: accept(db, other)) == 0


def test_old_ids_are_forgotten_by_age_and_number(backend: Backend) -> None:
    tenant = backend.tenant()
    hook = known(backend, tenant)

    def accept(id_: str) -> None:
        assert backend.run(lambda db: accept_delivery(db, backend.keys, hook, delivery(hook, id_))) == 0

    for number in range(6):
        accept(str(number))
    backend.sql(
        "UPDATE hook_deliveries SET received_at = received_at - interval '8 days' WHERE delivery = sha256('0')"
    )
    delete = lambda most: backend.run(  # noqa: E731
        lambda db: hooks.delete_old_deliveries(db, days=7, most=most, limit=10_000)
    )
    count = "SELECT count(*) FROM hook_deliveries WHERE hook_id = %s"
    delete(100)
    assert backend.sql(count, hook.id) == [(5,)]
    delete(2)
    assert backend.sql(count, hook.id) == [(2,)]
    accept("5")
    assert stored_pushes(backend, tenant) == 6  # still known
    accept("0")
    assert stored_pushes(backend, tenant) == 7


def test_a_hook_is_created_listed_and_removed_with_audit_lines(backend: Backend) -> None:
    tenant, stranger = backend.tenant(), backend.tenant()
    sender = open_sender(backend, tenant, HookHost.GITEA)
    hook_id = str(sender.hook.id)
    assert len(sender.hook.secret) == 64
    (record,) = backend.run(lambda db: manage.list_hooks(db, tenant.account))
    assert (str(record.id), record.host, record.created_by) == (hook_id, HookHost.GITEA, "a test")
    assert backend.run(lambda db: manage.list_hooks(db, stranger.account)) == []
    stored = backend.sql("SELECT token_digest, secret_box FROM hooks WHERE id = %s", sender.hook.id)
    token = sender.path.rpartition("/")[2]
    assert token.encode() not in stored[0][0] + stored[0][1]
    assert sender.hook.secret.encode() not in stored[0][1]

    def remove(account: Tenant) -> None:
        backend.run(lambda db: manage.remove_hook(db, account.account, hook_id, by="a test", now=now()))

    from outcrop.domain.errors import NotFoundError  # noqa: PLC0415

    with pytest.raises(NotFoundError):
        remove(stranger)
    remove(tenant)
    with pytest.raises(NotFoundError):
        remove(tenant)
    actions = backend.sql(
        "SELECT action, detail FROM audit WHERE account_id = %s AND action LIKE 'hook.%%' ORDER BY id",
        tenant.account.id,
    )
    assert actions == [("hook.create", {"host": "gitea"}), ("hook.remove", {"host": "gitea"})]


def test_another_host_and_too_many_hooks_are_refused(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = backend.tenant()

    def create(host: str) -> None:
        backend.run(
            lambda db: manage.create_hook(
                db, backend.keys, tenant.account, host, base_url="", by="a test", now=now()
            )
        )

    with pytest.raises(BadInputError, match="github, gitlab"):
        create("sourceforge")
    monkeypatch.setattr(manage, "HOOKS", 2)
    create("github")
    create("github")
    with pytest.raises(BadInputError, match="at most 2"):
        create("github")


@pytest.mark.parametrize("body", [b"payload=" + b"%7B" * 3_000_001, b"x=1"])
def test_a_form_without_payload_or_with_too_many_escapes_is_not_read(body: bytes) -> None:
    with pytest.raises((BadInputError, TooManyValuesError)):
        read_payload(body, "application/x-www-form-urlencoded")
