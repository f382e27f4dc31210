"""Store each account's webhook, and read the log of its deliveries."""

from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.webhook import Delivery, DeliveryState, Health, Webhook
from outcrop.store.db import Connection

_MAX_COUNTED = 1000  # newest deliveries among which failures in a row are counted

_DELIVERY = """id, event, finding_id,
               coalesce(outcome, CASE WHEN claimed_at IS NULL THEN 'waiting' ELSE 'sending' END), created_at,
               date_trunc('second', claimed_at), status, reason, ms, answer, again_of"""


async def upsert(
    db: Connection, account_id: int, *, webhook_id: UUID, url: str, secret_box: bytes, now: datetime
) -> bool:
    """Save the account's only webhook; return whether it replaced an earlier one."""
    cursor = await db.execute(
        """INSERT INTO webhooks AS w (account_id, id, url, secret_box, created_at) VALUES (%s, %s, %s, %s, %s)
           ON CONFLICT (account_id) DO UPDATE
           SET id = excluded.id, url = excluded.url, secret_box = excluded.secret_box,
               created_at = excluded.created_at
           RETURNING xmax <> 0""",
        [account_id, webhook_id, url, secret_box, now],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return bool(row[0])


async def delete(db: Connection, account_id: int) -> str | None:
    """Delete the account's webhook and its secret; return its URL, or None if there was none."""
    row = await (
        await db.execute("DELETE FROM webhooks WHERE account_id = %s RETURNING url", [account_id])
    ).fetchone()
    return None if row is None else row[0]


async def select(db: Connection, account_id: int) -> Webhook | None:
    """Return the account's webhook and how well its last deliveries went."""
    cursor = await db.execute("SELECT id, url, created_at FROM webhooks WHERE account_id = %s", [account_id])
    row = await cursor.fetchone()
    return None if row is None else Webhook(row[1], row[2], await _select_health(db, account_id, row[0]))


async def _select_health(db: Connection, account_id: int, webhook_id: UUID) -> Health:
    """Return the time of the webhook's last success, and the number of failures since then."""
    cursor = await db.execute(
        """SELECT seq, date_trunc('second', claimed_at) FROM outbox
           WHERE account_id = %s AND webhook_id = %s AND outcome = 'ok' ORDER BY seq DESC LIMIT 1""",
        [account_id, webhook_id],
    )
    seq, at = await cursor.fetchone() or (0, None)
    cursor = await db.execute(
        """SELECT count(*) FILTER (WHERE outcome = 'failed'), count(*) FILTER (WHERE outcome = 'unknown')
           FROM (SELECT webhook_id, outcome FROM outbox WHERE account_id = %s AND seq > %s
                 ORDER BY seq DESC LIMIT %s) recent
           WHERE webhook_id = %s""",
        [account_id, seq, _MAX_COUNTED, webhook_id],
    )
    failed, unknown = await cursor.fetchone() or (0, 0)
    return Health(at, failed, unknown)


async def select_delivery(db: Connection, account_id: int, delivery_id: UUID) -> Delivery | None:
    """Return one delivery of the account."""
    cursor = await db.execute(
        f"SELECT {_DELIVERY} FROM outbox WHERE account_id = %s AND id = %s".encode(),
        [account_id, delivery_id],
    )
    row = await cursor.fetchone()
    return None if row is None else _build_delivery(row)


async def select_deliveries(
    db: Connection, account_id: int, *, limit: int, before: UUID | None
) -> list[Delivery]:
    """Return a page of the account's deliveries, newest first.

    `before` is the last delivery of the previous page: only older ones are returned.
    """
    cursor = await db.execute(
        f"""SELECT {_DELIVERY} FROM outbox
            WHERE account_id = %(account)s
              AND (%(before)s::uuid IS NULL
                   OR seq < (SELECT seq FROM outbox WHERE account_id = %(account)s AND id = %(before)s))
            ORDER BY seq DESC LIMIT %(limit)s""".encode(),
        {"account": account_id, "before": before, "limit": limit},
    )
    return [_build_delivery(row) for row in await cursor.fetchall()]


async def delete_old_deliveries(db: Connection, *, days: int, limit: int) -> int:
    """Delete at most `limit` ended deliveries of all accounts that were claimed more than `days` days ago.

    Return their number. Their audit lines stay.
    """
    cursor = await db.execute(
        """DELETE FROM outbox WHERE ctid = ANY(ARRAY(
               SELECT ctid FROM outbox
               WHERE claimed_at < clock_timestamp() - make_interval(days => %s) AND outcome IS NOT NULL
               LIMIT %s))""",
        [days, limit],
    )
    return cursor.rowcount


def _build_delivery(row: tuple[Any, ...]) -> Delivery:
    """Return the delivery of a row with the columns of `_DELIVERY`."""
    id_, event, finding_id, state, created_at, sent_at, status, reason, ms, answer, again_of = row
    text = None if answer is None else answer.decode("utf-8", "replace")
    return Delivery(
        id_, event, finding_id, DeliveryState(state), created_at, sent_at, status, reason, ms, text, again_of
    )
