"""Save, remove and test the webhook of an account; list its deliveries and send them again."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from yarl import URL

from outcrop.domain.account import API_MINIMUM, WEBHOOK_PLANS, Account
from outcrop.domain.errors import BadInputError, NotFoundError, PlanTooLowError
from outcrop.domain.events import example_event
from outcrop.domain.secret import Secret
from outcrop.domain.webhook import KEPT_DAYS, LATEST_SWITCH, Delivery, DeliveryFilter, DeliveryState, Webhook
from outcrop.lazy_regex import regex
from outcrop.limits import REPEATED_DELIVERIES, WEBHOOK_URL_LENGTH
from outcrop.store import audit, outbox, webhooks
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring

_HOST = regex(r"[0-9A-Za-z_.:-]{1,253}")
_DELETE_BATCH_SIZE = 5000  # deliveries that one transaction deletes


async def save_webhook(
    db: Connection,
    keys: Keyring,
    account: Account,
    url: str,
    *,
    ports: frozenset[int] = frozenset(),
    by: str,
    now: datetime,
) -> str:
    """Save the address of the webhook; return its new secret, which is shown only this once.

    Raise BadInputError if the operator allows certain `ports` and the address has another one.
    """
    _check_plan(account)
    address = _parse_address(url)
    if ports and address.port not in ports:
        allowed = ", ".join(map(str, sorted(ports)))
        raise BadInputError(f"the address must have one of these ports: {allowed}")
    webhook_id, secret = uuid4(), secrets.token_hex(32)
    replaced = await webhooks.upsert(
        db,
        account.id,
        webhook_id=webhook_id,
        url_box=keys.seal_url(str(address), account.id, webhook_id),
        secret_box=keys.seal(Secret(secret, mask_all=True), account.id, webhook_id),
        now=now,
    )
    await audit.append(
        db,
        account.id,
        audit.AuditLine(now, by, "webhook.save", _host(address), detail={"replaced": replaced}),
    )
    return secret


async def prepare_secret(db: Connection, keys: Keyring, account: Account, *, by: str, now: datetime) -> str:
    """Create the next secret, which signs beside the present one; return it. It is shown only this once.

    A secret that was prepared before is replaced.
    """
    _check_plan(account)
    if (webhook_id := await webhooks.lock_id(db, account.id)) is None:
        raise _missing()
    secret = secrets.token_hex(32)
    box = keys.seal(Secret(secret, mask_all=True), account.id, webhook_id)
    await webhooks.save_next_secret(db, account.id, box)
    await audit.append(db, account.id, audit.AuditLine(now, by, "webhook.prepare"))
    return secret


async def discard_secret(db: Connection, account: Account, *, by: str, now: datetime) -> None:
    """Discard the next secret."""
    if await webhooks.lock_id(db, account.id) is None:
        raise _missing()
    await webhooks.save_next_secret(db, account.id, None)
    await audit.append(db, account.id, audit.AuditLine(now, by, "webhook.discard"))


async def switch_secret(
    db: Connection, account: Account, at: datetime | None, *, by: str, now: datetime
) -> None:
    """Make the next secret the secret, now (None) or at a time within 30 days.

    The secret before it signs in `webhook-signature` for 24 hours more.
    """
    if at is not None and not now < at <= now + LATEST_SWITCH:
        raise BadInputError("choose a time within the next 30 days")
    if await webhooks.lock_id(db, account.id) is None:
        raise _missing()
    if not await webhooks.plan_switch(db, account.id, at):
        raise BadInputError("prepare the next secret first")
    detail = {} if at is None else {"switch_at": at.isoformat()}
    await audit.append(db, account.id, audit.AuditLine(now, by, "webhook.switch", detail=detail))


async def remove_webhook(db: Connection, keys: Keyring, account: Account, *, by: str, now: datetime) -> None:
    """Remove the webhook; events that wait to be sent are dropped."""
    if (url := await webhooks.delete(db, keys, account.id)) is None:
        raise _missing()
    await audit.append(db, account.id, audit.AuditLine(now, by, "webhook.remove", _host(URL(url))))


async def get_webhook(db: Connection, keys: Keyring, account_id: int) -> Webhook | None:
    """Return the webhook of an account, if it has one."""
    return await webhooks.select(db, keys, account_id)


async def list_deliveries(
    db: Connection,
    account_id: int,
    *,
    limit: int,
    before: UUID | None = None,
    wanted: DeliveryFilter | None = None,
) -> list[Delivery]:
    """Return up to `limit` deliveries that match a filter, newest first.

    `before` is the last one of the previous page.
    """
    return await webhooks.select_deliveries(db, account_id, limit=limit, before=before, wanted=wanted)


async def get_body(db: Connection, account_id: int, delivery_id: UUID) -> bytes | None:
    """Return the body of a delivery as it was sent; None if nothing was sent."""
    return await webhooks.select_body(db, account_id, delivery_id)


async def redeliver_all(
    db: Connection,
    account: Account,
    deliveries: Sequence[UUID] | DeliveryFilter,
    *,
    by: str,
    now: datetime,
) -> int:
    """Enqueue the events of ended deliveries again, unchanged; return how many.

    With a filter, the newest REPEATED_DELIVERIES that match it. Each new delivery names the old one.
    """
    await _check_ready(db, account)
    if isinstance(deliveries, DeliveryFilter):
        deliveries = await webhooks.select_ended_ids(db, account.id, deliveries, limit=REPEATED_DELIVERIES)
    repeated = await outbox.append_repeats(db, account.id, deliveries[:REPEATED_DELIVERIES], now=now)
    lines: list[tuple[str, dict[str, object]]] = [
        (str(new), {"event": event, "again_of": str(old)}) for new, old, event in repeated
    ]
    await audit.append_many(db, account.id, lines, at=now, actor=by, action="webhook.again")
    return len(repeated)


async def get_delivery(db: Connection, account_id: int, delivery_id: UUID) -> Delivery:
    """Return a delivery; raise NotFoundError if the account has none of this id."""
    if (delivery := await webhooks.select_delivery(db, account_id, delivery_id)) is None:
        raise NotFoundError(f"there is no delivery {delivery_id}")
    return delivery


async def send_test_event(db: Connection, account: Account, *, by: str, now: datetime) -> UUID:
    """Enqueue an example event; return the id of its delivery."""
    await _check_ready(db, account)
    event_id = uuid4()
    await outbox.append(db, account.id, example_event(now), event_id=event_id, now=now)
    await audit.append(db, account.id, audit.AuditLine(now, by, "webhook.test", str(event_id)))
    return event_id


async def redeliver(db: Connection, account: Account, delivery_id: UUID, *, by: str, now: datetime) -> UUID:
    """Enqueue the event of an ended delivery again, unchanged; return the id of the new delivery."""
    await _check_ready(db, account)
    if (delivery := await get_delivery(db, account.id, delivery_id)).state in {
        DeliveryState.WAITING,
        DeliveryState.SENDING,
    }:
        raise BadInputError("this delivery has not ended yet")
    event_id = uuid4()
    await outbox.append_repeat(db, account.id, delivery_id, event_id=event_id, now=now)
    detail = {"event": delivery.event, "again_of": str(delivery_id)}
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "webhook.again", str(event_id), detail=detail)
    )
    return event_id


async def delete_old_deliveries(pool: Pool) -> int:
    """Delete deliveries older than KEPT_DAYS, in several transactions; return how many."""
    deleted = 0
    while True:
        async with pool.connection() as db:
            count = await webhooks.delete_old_deliveries(db, days=KEPT_DAYS, limit=_DELETE_BATCH_SIZE)
        deleted += count
        if count < _DELETE_BATCH_SIZE:
            return deleted


def _check_plan(account: Account) -> None:
    """Raise PlanTooLowError if the account's plan includes no webhook."""
    if account.plan not in WEBHOOK_PLANS:
        raise PlanTooLowError(
            f"the plan {account.plan} has no webhook: it takes {API_MINIMUM} or higher", API_MINIMUM
        )


async def _check_ready(db: Connection, account: Account) -> None:
    """Raise PlanTooLowError or NotFoundError if the account can have no webhook, or has none."""
    _check_plan(account)
    if not await webhooks.exists(db, account.id):
        raise _missing()


def _missing() -> NotFoundError:
    """Return the error for an account without a webhook."""
    return NotFoundError("the account has no webhook")


def _parse_address(text: str) -> URL:
    """Return the normalised address; raise BadInputError if it is not an https URL without credentials.

    Its host is resolved and checked when an event is sent.
    """
    text = text.strip()
    if len(text) > WEBHOOK_URL_LENGTH:
        raise BadInputError(f"the address has at most {WEBHOOK_URL_LENGTH:,} characters")
    try:
        url = URL(text)
        host = url.raw_host or ""
        is_valid = bool(
            text.isprintable()
            and not set(" \\") & set(text)
            and url.absolute
            and _HOST.fullmatch(host)
            and url.port
        )
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadInputError("this is not an address such as https://hooks.example.com/outcrop")
    if url.scheme != "https":
        raise BadInputError("the address must begin with https://")
    if url.raw_user is not None or url.raw_password is not None:
        raise BadInputError("give the address without a name or password: every delivery is signed")
    return url.with_fragment(None)


def _host(url: URL) -> str | None:
    """Return host and port for the audit trail; the rest of the address may contain a token."""
    return url.raw_authority or None  # the URL may be damaged
