"""Queue webhook events, claim them for sending, and save the result of each delivery.

1. An event is appended in the transaction of the change that it reports (`append`).
2. A worker takes an advisory lock as its liveness signal (`lock_claimer`) and claims events
   (`claim_events`).
3. After sending, it saves the results with their audit lines (`save_results`).
4. If it dies before that, its lock is free, and another worker ends its deliveries
   (`end_abandoned_deliveries`).

Claiming works over all accounts: a worker sends the events of every account and shows them to no other
account.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Json

from outcrop.domain.events import Event
from outcrop.domain.webhook import DeliveryOutcome
from outcrop.store.db import Connection

ACTOR = "delivery"  # the actor of the audit lines
_MAX_DROPPED = 500  # events that one claim takes from an account whose events cannot be sent anywhere


async def append(db: Connection, account_id: int, event: Event, *, event_id: UUID, now: datetime) -> None:
    """Insert an event that waits to be sent."""
    await db.execute(
        """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at)
           VALUES (%s, %s, %s, %s, %s, %s)""",
        [event_id, account_id, event.type, event.finding_id, Json(event.finding), now],
    )


async def append_repeat(
    db: Connection, account_id: int, delivery_id: UUID, *, event_id: UUID, now: datetime
) -> None:
    """Insert a copy of the delivery's event, with the id `event_id`, that waits to be sent."""
    await db.execute(
        """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at, again_of)
           SELECT %s, account_id, event, finding_id, finding, %s, id FROM outbox
           WHERE account_id = %s AND id = %s""",
        [event_id, now, account_id, delivery_id],
    )


async def append_repeats(
    db: Connection, account_id: int, delivery_ids: Sequence[UUID], *, now: datetime
) -> list[tuple[UUID, UUID, str]]:
    """Insert a copy of the event of each of these deliveries that has ended.

    Return (id of the new delivery, id of the old one, event) of each.
    """
    cursor = await db.execute(
        """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at, again_of)
           SELECT gen_random_uuid(), account_id, event, finding_id, finding, %s, id FROM outbox
           WHERE account_id = %s AND id = ANY(%s) AND outcome IS NOT NULL ORDER BY seq
           RETURNING id, again_of, event""",
        [now, account_id, list(delivery_ids)],
    )
    return [(new, old, event) for new, old, event in await cursor.fetchall()]


async def lock_claimer(db: Connection, claimer: int) -> None:
    """Take the advisory lock `claimer` for this connection, as the claimer's liveness signal.

    The lock is free as soon as the connection is closed. If the worker's machine disappears, TCP keepalives
    let the server notice within a minute.
    """
    await db.execute(
        "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
    )
    await db.execute("SELECT pg_advisory_lock(%s)", [claimer])


async def unlock_claimer(db: Connection, claimer: int) -> None:
    """Release the lock of `lock_claimer`."""
    await db.execute("SELECT pg_advisory_unlock(%s)", [claimer])


async def select_waiting_accounts(db: Connection, *, after: int, limit: int) -> list[int]:
    """Return the ids above `after`, in order, of at most `limit` accounts that have waiting events.

    A loose index scan: one index lookup for each account, even if many events wait.
    """
    cursor = await db.execute(
        """WITH RECURSIVE waiting AS (
               SELECT (SELECT min(account_id) FROM outbox
                       WHERE claimed_at IS NULL AND account_id > %s) AS account_id
               UNION ALL
               SELECT (SELECT min(o.account_id) FROM outbox o
                       WHERE o.claimed_at IS NULL AND o.account_id > w.account_id)
               FROM waiting w WHERE w.account_id IS NOT NULL
           )
           SELECT account_id FROM waiting WHERE account_id IS NOT NULL LIMIT %s""",
        [after, limit],
    )
    return [account_id for (account_id,) in await cursor.fetchall()]


async def count_waiting(db: Connection) -> int:
    """Return how many events of all accounts wait to be sent."""
    cursor = await db.execute("SELECT count(*) FROM outbox WHERE claimed_at IS NULL")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event that only its claimer may send, with the account's plan and webhook at the claim."""

    id: UUID
    account_id: int
    slug: str
    plan: str
    event: str
    finding: str  # JSON
    webhook_id: UUID | None
    url: str = field(repr=False)  # empty if it is encrypted
    url_box: bytes | None = field(repr=False)
    secret_box: bytes | None = field(repr=False)
    other_boxes: tuple[bytes, ...] = field(
        default=(), repr=False
    )  # the next or the last secret, which sign too


async def claim_events(
    db: Connection, claimer: int, free_slots: Mapping[int, int], plans: Collection[str]
) -> list[ClaimedEvent]:
    """Claim the oldest waiting events of each account, at most `free_slots[account_id]` of them.

    Events that another claimer has locked are skipped. If the account has no webhook, or its plan is not in
    `plans`, its events cannot be sent; the caller drops them at once, so up to _MAX_DROPPED are claimed.

    The caller must commit before it sends. `synchronous_commit` makes that commit durable whatever the
    server's own setting is.
    """
    await db.execute("SET LOCAL synchronous_commit = on; SET LOCAL outcrop.reads_url_box = on")
    cursor = await db.execute(
        """WITH picked AS MATERIALIZED (
               SELECT o.id, a.id AS account_id, a.slug, a.plan, w.id AS webhook_id,
                      coalesce(w.url, '') AS url, w.url_box, w.secret_box,
                      array_remove(ARRAY[
                          w.next_box, CASE WHEN w.old_until > clock_timestamp() THEN w.old_box END
                      ], NULL) AS other_boxes
               FROM unnest(%(accounts)s::integer[], %(slots)s::integer[]) AS r (account_id, slots)
               JOIN accounts a ON a.id = r.account_id
               LEFT JOIN webhooks w ON w.account_id = r.account_id
               CROSS JOIN LATERAL (
                   SELECT q.id FROM outbox q WHERE q.account_id = r.account_id AND q.claimed_at IS NULL
                   ORDER BY q.seq
                   LIMIT CASE WHEN w.id IS NULL OR a.plan <> ALL(%(plans)s) THEN %(max_dropped)s
                              ELSE r.slots END
                   FOR UPDATE SKIP LOCKED) o
           )
           UPDATE outbox o SET claimed_at = clock_timestamp(), claimer = %(claimer)s,
                               webhook_id = p.webhook_id
           FROM picked p WHERE o.id = p.id
           RETURNING o.id, p.account_id, p.slug, p.plan, o.event, o.finding::text,
                     p.webhook_id, p.url, p.url_box, p.secret_box, p.other_boxes""",
        {
            "accounts": list(free_slots),
            "slots": list(free_slots.values()),
            "plans": list(plans),
            "max_dropped": _MAX_DROPPED,
            "claimer": claimer,
        },
    )
    return [_build_claimed_event(row) for row in await cursor.fetchall()]


def _build_claimed_event(row: tuple[Any, ...]) -> ClaimedEvent:
    """Return the event of a row of `claim_events`."""
    id_, account_id, slug, plan, event, finding, webhook_id, url, url_box, box, others = row
    return ClaimedEvent(
        id_, account_id, slug, plan, event, finding, webhook_id, url, url_box, box, tuple(others)
    )


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of one delivery, and the receiver's response if there was one."""

    id: UUID
    outcome: DeliveryOutcome
    status: int | None = None
    reason: str | None = None
    ms: int | None = None
    answer: bytes | None = None
    delivered_at: datetime | None = None  # the time in the body; None if nothing was sent


# The end of a statement whose CTE `ended` returns the deliveries that were given an outcome.
_INSERT_AUDIT_LINES = """
INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
SELECT account_id, %(now)s, %(actor)s, 'webhook.delivery', id::text, outcome,
       jsonb_strip_nulls(jsonb_build_object(
           'event', event, 'finding', finding_id, 'status', status, 'reason', reason, 'ms', ms))
FROM ended
"""


async def save_results(db: Connection, results: Sequence[DeliveryResult], *, now: datetime) -> None:
    """Save results with their audit lines; skip deliveries that are not claimed or have an outcome."""
    await db.execute(
        f"""WITH ended AS (
                UPDATE outbox o SET outcome = e.outcome, status = e.status, reason = e.reason, ms = e.ms,
                                    answer = e.answer, delivered_at = e.delivered_at
                FROM unnest(%(ids)s::uuid[], %(outcomes)s::text[], %(statuses)s::smallint[],
                            %(reasons)s::text[], %(ms)s::integer[], %(answers)s::bytea[],
                            %(delivered)s::timestamptz[])
                     AS e (id, outcome, status, reason, ms, answer, delivered_at)
                WHERE o.id = e.id AND o.claimed_at IS NOT NULL AND o.outcome IS NULL
                RETURNING o.account_id, o.id, o.event, o.finding_id, o.outcome, o.status, o.reason, o.ms
            ) {_INSERT_AUDIT_LINES}""".encode(),
        {
            "ids": [result.id for result in results],
            "outcomes": [result.outcome for result in results],
            "statuses": [result.status for result in results],
            "reasons": [result.reason for result in results],
            "ms": [result.ms for result in results],
            "answers": [result.answer for result in results],
            "delivered": [result.delivered_at for result in results],
            "now": now,
            "actor": ACTOR,
        },
    )


async def end_abandoned_deliveries(
    db: Connection, *, own: int, after: float, reason: str, now: datetime
) -> int:
    """Set the outcome `unknown` on deliveries whose claimer is dead; return their number.

    A claimer is dead if its advisory lock is free. Only claims older than `after` seconds, by the database's
    clock, are ended. `own` is the caller's own claimer, which is skipped: its connection holds that lock and
    could take it a second time.
    """
    cursor = await db.execute(
        """SELECT claimer
           FROM (SELECT DISTINCT claimer FROM outbox
                 WHERE claimed_at IS NOT NULL AND outcome IS NULL) AS claims
           WHERE claimer <> %s""",
        [own],
    )
    dead = []
    for (claimer,) in await cursor.fetchall():
        cursor = await db.execute("SELECT pg_try_advisory_xact_lock(%s)", [claimer])
        dead += [claimer for (is_free,) in await cursor.fetchall() if is_free]
    if not dead:
        return 0
    cursor = await db.execute(
        f"""WITH ended AS (
                UPDATE outbox SET outcome = 'unknown', reason = %(reason)s
                WHERE claimed_at IS NOT NULL AND outcome IS NULL AND claimer = ANY(%(dead)s)
                  AND claimed_at < clock_timestamp() - make_interval(secs => %(after)s)
                RETURNING account_id, id, event, finding_id, outcome, status, reason, ms
            ) {_INSERT_AUDIT_LINES}""".encode(),
        {"dead": dead, "after": after, "reason": reason, "now": now, "actor": ACTOR},
    )
    return cursor.rowcount


async def end_open_deliveries(db: Connection, *, reason: str, now: datetime) -> int:
    """Set the outcome `unknown` on every waiting or claimed delivery of all accounts; return their number.

    For a restored backup: the events may have been sent after the backup was made.
    """
    cursor = await db.execute(
        f"""WITH ended AS (
                UPDATE outbox SET claimed_at = coalesce(claimed_at, clock_timestamp()), outcome = 'unknown',
                                  reason = %(reason)s
                WHERE outcome IS NULL
                RETURNING account_id, id, event, finding_id, outcome, status, reason, ms
            ) {_INSERT_AUDIT_LINES}""".encode(),
        {"reason": reason, "now": now, "actor": ACTOR},
    )
    return cursor.rowcount
