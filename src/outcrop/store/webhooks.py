"""Store each account's webhook, and read the log of its deliveries.

A URL is stored encrypted. One that an older release has saved is in clear text until a worker encrypts it.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from outcrop.domain.webhook import (
    OLD_SECRET_SIGNS,
    Delivery,
    DeliveryFilter,
    DeliveryState,
    Health,
    Webhook,
    write_body,
)
from outcrop.store.db import Connection
from outcrop.store.keyring import DamagedValueError, Keyring

ACTOR = "delivery"  # the actor of the audit lines

_ENCRYPT_BATCH_SIZE = 1000  # URLs that one transaction encrypts
_MAX_COUNTED = 1000  # newest deliveries among which failures in a row are counted

_DELIVERY = """id, event, finding_id,
               coalesce(outcome, CASE WHEN claimed_at IS NULL THEN 'waiting' ELSE 'sending' END), created_at,
               date_trunc('second', claimed_at), status, reason, ms, answer, again_of"""


async def upsert(
    db: Connection, account_id: int, *, webhook_id: UUID, url_box: bytes, secret_box: bytes, now: datetime
) -> bool:
    """Save the account's only webhook; return whether it replaced an earlier one."""
    cursor = await db.execute(
        """INSERT INTO webhooks AS w (account_id, id, url, url_box, secret_box, created_at)
           VALUES (%s, %s, '', %s, %s, %s)
           ON CONFLICT (account_id) DO UPDATE
           SET id = excluded.id, url = '', url_box = excluded.url_box, secret_box = excluded.secret_box,
               created_at = excluded.created_at, next_box = NULL, switch_at = NULL, old_box = NULL,
               old_until = NULL
           RETURNING xmax <> 0""",
        [account_id, webhook_id, url_box, secret_box, now],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return bool(row[0])


async def delete(db: Connection, keys: Keyring, account_id: int) -> str | None:
    """Delete the account's webhook and its secret; return its URL, or None if there was none.

    A URL that is damaged is returned as an empty text.
    """
    cursor = await db.execute(
        "DELETE FROM webhooks WHERE account_id = %s RETURNING id, url, url_box", [account_id]
    )
    row = await cursor.fetchone()
    return None if row is None else _open_url(keys, account_id, *row)


async def encrypt_urls(db: Connection, keys: Keyring) -> None:
    """Encrypt URLs that an older release has saved in clear text."""
    cursor = await db.execute(
        """SELECT account_id, id, url FROM webhooks WHERE url <> ''
           LIMIT %s FOR NO KEY UPDATE SKIP LOCKED""",
        [_ENCRYPT_BATCH_SIZE],
    )
    for account_id, webhook_id, url in await cursor.fetchall():
        await db.execute(
            "UPDATE webhooks SET url = '', url_box = %s WHERE account_id = %s",
            [keys.seal_url(url, account_id, webhook_id), account_id],
        )


def _open_url(keys: Keyring, account_id: int, webhook_id: UUID, clear: str, box: bytes | None) -> str:
    """Return the URL of a webhook; an empty text if it is damaged."""
    if clear or box is None:
        return clear
    try:
        return keys.open_url(box, account_id, webhook_id)
    except DamagedValueError:  # `outcrop doctor` reports it
        return ""


async def exists(db: Connection, account_id: int) -> bool:
    """Whether the account has a webhook."""
    cursor = await db.execute("SELECT FROM webhooks WHERE account_id = %s", [account_id])
    return await cursor.fetchone() is not None


async def select(db: Connection, keys: Keyring, account_id: int) -> Webhook | None:
    """Return the account's webhook and how well its last deliveries went."""
    cursor = await db.execute(
        """SELECT id, url, url_box, created_at, next_box IS NOT NULL, switch_at,
                  CASE WHEN old_until > clock_timestamp() THEN old_until END
           FROM webhooks WHERE account_id = %s""",
        [account_id],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    id_, clear, box, created_at, has_next, switch_at, old_until = row
    health = await _select_health(db, account_id, id_)
    return Webhook(
        _open_url(keys, account_id, id_, clear, box), created_at, health, has_next, switch_at, old_until
    )


async def lock_id(db: Connection, account_id: int) -> UUID | None:
    """Lock the account's webhook until the transaction ends; return its id, None if there is none."""
    cursor = await db.execute("SELECT id FROM webhooks WHERE account_id = %s FOR UPDATE", [account_id])
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def save_next_secret(db: Connection, account_id: int, box: bytes | None) -> None:
    """Save the next secret, encrypted, in place of one that is prepared already; None discards that."""
    await db.execute(
        "UPDATE webhooks SET next_box = %s, switch_at = NULL WHERE account_id = %s", [box, account_id]
    )


async def plan_switch(db: Connection, account_id: int, at: datetime | None) -> bool:
    """Save when the next secret becomes the secret, or switch now (None); return whether one is prepared."""
    cursor = await db.execute(
        """UPDATE webhooks SET switch_at = coalesce(%s, clock_timestamp())
           WHERE account_id = %s AND next_box IS NOT NULL""",
        [at, account_id],
    )
    if at is None:
        await _switch(db, "account_id = %s", [account_id])
    return cursor.rowcount == 1


async def switch_due(db: Connection) -> None:
    """Switch to the next secret where the time for it has come, and erase secrets that sign no longer."""
    await _switch(db, "switch_at <= clock_timestamp()", [])
    await db.execute(
        "UPDATE webhooks SET old_box = NULL, old_until = NULL WHERE old_until <= clock_timestamp()"
    )


async def _switch(db: Connection, condition: str, values: list[Any]) -> None:
    """Make the next secret of webhooks the secret, with an audit line if the time was chosen before."""
    await db.execute(
        f"""WITH switched AS (
                UPDATE webhooks SET old_box = secret_box, old_until = switch_at + %s, secret_box = next_box,
                                    next_box = NULL, switch_at = NULL
                WHERE next_box IS NOT NULL AND {condition} RETURNING account_id, id)
            INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
            SELECT account_id, date_trunc('second', clock_timestamp()), %s, 'webhook.switched', id::text,
                   'ok', '{{}}' FROM switched""".encode(),
        [OLD_SECRET_SIGNS, *values, ACTOR],
    )


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
    db: Connection,
    account_id: int,
    *,
    limit: int,
    before: UUID | None,
    wanted: DeliveryFilter | None = None,
) -> list[Delivery]:
    """Return a page of the account's deliveries that match a filter, newest first.

    `before` is the last delivery of the previous page: only older ones are returned.
    """
    conditions, values = _build_conditions(wanted or DeliveryFilter())
    cursor = await db.execute(
        f"""SELECT {_DELIVERY} FROM outbox
            WHERE account_id = %(account)s
              AND (%(before)s::uuid IS NULL
                   OR seq < (SELECT seq FROM outbox WHERE account_id = %(account)s AND id = %(before)s))
              AND {conditions}
            ORDER BY seq DESC LIMIT %(limit)s""".encode(),
        values | {"account": account_id, "before": before, "limit": limit},
    )
    return [_build_delivery(row) for row in await cursor.fetchall()]


async def select_ended_ids(
    db: Connection, account_id: int, wanted: DeliveryFilter, *, limit: int
) -> list[UUID]:
    """Return the ids of the newest deliveries that match a filter and have ended, at most `limit`."""
    conditions, values = _build_conditions(wanted)
    cursor = await db.execute(
        f"""SELECT id FROM outbox WHERE account_id = %(account)s AND outcome IS NOT NULL AND {conditions}
            ORDER BY seq DESC LIMIT %(limit)s""".encode(),
        values | {"account": account_id, "limit": limit},
    )
    return [delivery_id for (delivery_id,) in await cursor.fetchall()]


async def select_body(db: Connection, account_id: int, delivery_id: UUID) -> bytes | None:
    """Return the body of a delivery as it was sent; None if nothing was, or its time is not stored."""
    cursor = await db.execute(
        """SELECT o.event, o.delivered_at, a.slug, o.finding::text
           FROM outbox o JOIN accounts a ON a.id = o.account_id
           WHERE o.account_id = %s AND o.id = %s AND o.delivered_at IS NOT NULL""",
        [account_id, delivery_id],
    )
    row = await cursor.fetchone()
    return None if row is None else write_body(row[0], row[1].astimezone(UTC), row[2], row[3])


def _build_conditions(wanted: DeliveryFilter) -> tuple[str, dict[str, Any]]:
    """Return the SQL conditions of a filter, and the values of their placeholders."""
    state = "coalesce(outcome, CASE WHEN claimed_at IS NULL THEN 'waiting' ELSE 'sending' END)"
    conditions = {
        "event": "event = %(event)s",
        "state": f"{state} = %(state)s",
        "finding_id": "finding_id = %(finding_id)s",
        "since": "created_at >= %(since)s",
        "until": "created_at < %(until)s",
    }
    values = {name: value for name in conditions if (value := getattr(wanted, name)) is not None}
    return " AND ".join(["true", *(conditions[name] for name in values)]), values


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
