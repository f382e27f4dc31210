"""An account's webhook at rest, and the log of its deliveries."""

from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.webhook import Delivery, DeliveryState, Health, Webhook
from outcrop.store.db import Connection

_RECENT = 1000  # deliveries that failures in a row are counted in

_DELIVERY = """id, event, finding_id, coalesce(outcome, CASE WHEN claimed_at IS NULL THEN 'waiting' ELSE 'sending' END), created_at,
               date_trunc('second', claimed_at), status, reason, ms, answer, again_of"""


async def upsert(
    db: Connection, account_id: int, *, webhook_id: UUID, url: str, box: bytes, now: datetime
) -> bool:
    """Save the webhook, in place of another; give whether there was one."""
    cursor = await db.execute(
        """INSERT INTO webhooks AS w (account_id, id, url, secret_box, created_at) VALUES (%s, %s, %s, %s, %s)
           ON CONFLICT (account_id) DO UPDATE
           SET id = excluded.id, url = excluded.url, secret_box = excluded.secret_box, created_at = excluded.created_at
           RETURNING xmax <> 0""",
        [account_id, webhook_id, url, box, now],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return bool(row[0])


async def delete(db: Connection, account_id: int) -> str | None:
    """Remove the webhook with its secret; give its address, None where there was none."""
    row = await (
        await db.execute("DELETE FROM webhooks WHERE account_id = %s RETURNING url", [account_id])
    ).fetchone()
    return None if row is None else row[0]


async def select(db: Connection, account_id: int) -> Webhook | None:
    cursor = await db.execute("SELECT id, url, created_at FROM webhooks WHERE account_id = %s", [account_id])
    row = await cursor.fetchone()
    return None if row is None else Webhook(row[1], row[2], await _health(db, account_id, row[0]))


async def _health(db: Connection, account_id: int, webhook_id: UUID) -> Health:
    cursor = await db.execute(
        """SELECT seq, date_trunc('second', claimed_at) FROM outbox
           WHERE account_id = %s AND webhook_id = %s AND outcome = 'ok' ORDER BY seq DESC LIMIT 1""",
        [account_id, webhook_id],
    )
    seq, at = await cursor.fetchone() or (0, None)
    cursor = await db.execute(
        """SELECT count(*) FILTER (WHERE outcome = 'failed'), count(*) FILTER (WHERE outcome = 'unknown') FROM (
               SELECT webhook_id, outcome FROM outbox WHERE account_id = %s AND seq > %s ORDER BY seq DESC LIMIT %s) recent
           WHERE webhook_id = %s""",
        [account_id, seq, _RECENT, webhook_id],
    )
    failed, unknown = await cursor.fetchone() or (0, 0)
    return Health(at, failed, unknown)


async def select_delivery(db: Connection, account_id: int, delivery_id: UUID) -> Delivery | None:
    cursor = await db.execute(
        f"SELECT {_DELIVERY} FROM outbox WHERE account_id = %s AND id = %s".encode(),
        [account_id, delivery_id],
    )
    row = await cursor.fetchone()
    return None if row is None else _delivery(row)


async def select_deliveries(
    db: Connection, account_id: int, *, limit: int, before: UUID | None
) -> list[Delivery]:
    """Newest first; `before` is the last one of the page before."""
    cursor = await db.execute(
        f"""SELECT {_DELIVERY} FROM outbox WHERE account_id = %(account)s
              AND (%(before)s::uuid IS NULL OR seq < (SELECT seq FROM outbox WHERE account_id = %(account)s AND id = %(before)s))
            ORDER BY seq DESC LIMIT %(limit)s""".encode(),
        {"account": account_id, "before": before, "limit": limit},
    )
    return [_delivery(row) for row in await cursor.fetchall()]


async def delete_old_deliveries(db: Connection, *, days: int, limit: int) -> int:
    """Delete deliveries of all accounts that ended so long ago, at most so many; the audit trail keeps its lines."""
    cursor = await db.execute(
        """DELETE FROM outbox WHERE ctid = ANY(ARRAY(
               SELECT ctid FROM outbox
               WHERE claimed_at < clock_timestamp() - make_interval(days => %s) AND outcome IS NOT NULL LIMIT %s))""",
        [days, limit],
    )
    return cursor.rowcount


def _delivery(row: tuple[Any, ...]) -> Delivery:
    id_, event, finding_id, state, created_at, sent_at, status, reason, ms, answer, again_of = row
    text = None if answer is None else answer.decode("utf-8", "replace")
    return Delivery(
        id_, event, finding_id, DeliveryState(state), created_at, sent_at, status, reason, ms, text, again_of
    )
