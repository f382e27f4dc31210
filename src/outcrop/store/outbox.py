"""Events that wait to be sent, written in the transaction of the change they tell of; who has claimed which, and how it ended."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from psycopg.types.json import Json

from outcrop.domain.events import Event
from outcrop.domain.webhook import DeliveryOutcome
from outcrop.store.db import Connection

ACTOR = "delivery"  # who the audit trail names
_NOWHERE = 500  # events of an account that are dropped at once


async def append(db: Connection, account_id: int, event: Event, *, event_id: UUID, now: datetime) -> None:
    await db.execute(
        "INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at) VALUES (%s, %s, %s, %s, %s, %s)",
        [event_id, account_id, event.type, event.finding_id, Json(event.finding), now],
    )


async def append_repeat(
    db: Connection, account_id: int, delivery_id: UUID, *, event_id: UUID, now: datetime
) -> None:
    """Let the same event wait once more, as a delivery of its own."""
    await db.execute(
        """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at, again_of)
           SELECT %s, account_id, event, finding_id, finding, %s, id FROM outbox WHERE account_id = %s AND id = %s""",
        [event_id, now, account_id, delivery_id],
    )


# --- claiming: over all accounts, for the one who sends serves them all and shows what it reads to none


async def lock_claimer(db: Connection, claimer: int) -> None:
    """Hold the lock that tells the others: whoever claims under this number lives, for as long as this connection does.

    A machine that vanishes says nothing; the server finds out within a minute.
    """
    await db.execute(
        "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
    )
    await db.execute("SELECT pg_advisory_lock(%s)", [claimer])


async def unlock_claimer(db: Connection, claimer: int) -> None:
    await db.execute("SELECT pg_advisory_unlock(%s)", [claimer])


async def select_waiting_accounts(db: Connection, *, after: int, limit: int) -> list[int]:
    """Name the next accounts with events that wait, by their id; one look at the index for each, however many wait."""
    cursor = await db.execute(
        """WITH RECURSIVE waiting AS (
               SELECT (SELECT min(account_id) FROM outbox WHERE claimed_at IS NULL AND account_id > %s) AS account_id
               UNION ALL
               SELECT (SELECT min(o.account_id) FROM outbox o WHERE o.claimed_at IS NULL AND o.account_id > w.account_id)
               FROM waiting w WHERE w.account_id IS NOT NULL
           )
           SELECT account_id FROM waiting WHERE account_id IS NOT NULL LIMIT %s""",
        [after, limit],
    )
    return [account_id for (account_id,) in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event that is this claimer's alone to send, with the account's plan and webhook as they are now."""

    id: UUID
    account_id: int
    slug: str
    plan: str
    event: str
    finding: str  # JSON
    webhook_id: UUID | None
    url: str | None
    secret_box: bytes | None = field(repr=False)


async def claim_events(
    db: Connection, claimer: int, rooms: Mapping[int, int], plans: Collection[str]
) -> list[ClaimedEvent]:
    """Claim the oldest waiting events, of each account as many as there is room for. What another holds is left to it.

    Events that have nowhere to go, for want of a webhook or of one of these plans, take no room.
    Nothing is sent before this is committed, and durable whatever the server's own setting is.
    """
    await db.execute("SET LOCAL synchronous_commit = on")
    cursor = await db.execute(
        """WITH picked AS MATERIALIZED (
               SELECT o.id, a.id AS account_id, a.slug, a.plan, w.id AS webhook_id, w.url, w.secret_box
               FROM unnest(%(accounts)s::integer[], %(rooms)s::integer[]) AS r (account_id, room)
               JOIN accounts a ON a.id = r.account_id
               LEFT JOIN webhooks w ON w.account_id = r.account_id
               CROSS JOIN LATERAL (
                   SELECT q.id FROM outbox q WHERE q.account_id = r.account_id AND q.claimed_at IS NULL
                   ORDER BY q.seq LIMIT CASE WHEN w.url IS NULL OR a.plan <> ALL(%(plans)s) THEN %(nowhere)s ELSE r.room END
                   FOR UPDATE SKIP LOCKED) o
           )
           UPDATE outbox o SET claimed_at = clock_timestamp(), claimer = %(claimer)s, webhook_id = p.webhook_id
           FROM picked p WHERE o.id = p.id
           RETURNING o.id, p.account_id, p.slug, p.plan, o.event, o.finding::text, p.webhook_id, p.url, p.secret_box""",
        {
            "accounts": list(rooms),
            "rooms": list(rooms.values()),
            "plans": list(plans),
            "nowhere": _NOWHERE,
            "claimer": claimer,
        },
    )
    return [ClaimedEvent(*row) for row in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How one delivery ended."""

    id: UUID
    outcome: DeliveryOutcome
    status: int | None = None
    reason: str | None = None
    ms: int | None = None
    answer: bytes | None = None


_TOLD = """
INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
SELECT account_id, %(now)s, %(actor)s, 'webhook.delivery', id::text, outcome,
       jsonb_strip_nulls(jsonb_build_object('event', event, 'finding', finding_id, 'status', status, 'reason', reason, 'ms', ms))
FROM ended
"""


async def save_results(db: Connection, ended: Sequence[DeliveryResult], *, now: datetime) -> None:
    """Write how deliveries ended, each with its audit line; one whose end is written already stays as it is."""
    await db.execute(
        f"""WITH ended AS (
                UPDATE outbox o SET outcome = e.outcome, status = e.status, reason = e.reason, ms = e.ms, answer = e.answer
                FROM unnest(%(ids)s::uuid[], %(outcomes)s::text[], %(statuses)s::smallint[], %(reasons)s::text[], %(ms)s::integer[],
                            %(answers)s::bytea[]) AS e (id, outcome, status, reason, ms, answer)
                WHERE o.id = e.id AND o.claimed_at IS NOT NULL AND o.outcome IS NULL
                RETURNING o.account_id, o.id, o.event, o.finding_id, o.outcome, o.status, o.reason, o.ms
            ) {_TOLD}""".encode(),
        {
            "ids": [one.id for one in ended],
            "outcomes": [one.outcome for one in ended],
            "statuses": [one.status for one in ended],
            "reasons": [one.reason for one in ended],
            "ms": [one.ms for one in ended],
            "answers": [one.answer for one in ended],
            "now": now,
            "actor": ACTOR,
        },
    )


async def end_abandoned_deliveries(
    db: Connection, *, own: int, after: float, reason: str, now: datetime
) -> int:
    """End as unknown what a claimer that is gone has left open: its lock is free, and `after` seconds have passed on the database's clock.

    `own` is the caller's claimer, whose lock its own connection could take twice.
    """
    cursor = await db.execute(
        """SELECT claimer FROM (SELECT DISTINCT claimer FROM outbox WHERE claimed_at IS NOT NULL AND outcome IS NULL) AS under_way
           WHERE claimer <> %s""",
        [own],
    )
    gone = []
    for (claimer,) in await cursor.fetchall():
        cursor = await db.execute("SELECT pg_try_advisory_xact_lock(%s)", [claimer])
        gone += [claimer for (free,) in await cursor.fetchall() if free]
    if not gone:
        return 0
    cursor = await db.execute(
        f"""WITH ended AS (
                UPDATE outbox SET outcome = 'unknown', reason = %(reason)s
                WHERE claimed_at IS NOT NULL AND outcome IS NULL AND claimer = ANY(%(gone)s)
                  AND claimed_at < clock_timestamp() - make_interval(secs => %(after)s)
                RETURNING account_id, id, event, finding_id, outcome, status, reason, ms
            ) {_TOLD}""".encode(),
        {"gone": gone, "after": after, "reason": reason, "now": now, "actor": ACTOR},
    )
    return cursor.rowcount


async def end_open_deliveries(db: Connection, *, reason: str, now: datetime) -> int:
    """End as unknown whatever waits or is under way, of all accounts: of none of it is known whether it was sent. Give how many."""
    cursor = await db.execute(
        f"""WITH ended AS (
                UPDATE outbox SET claimed_at = coalesce(claimed_at, clock_timestamp()), outcome = 'unknown', reason = %(reason)s
                WHERE outcome IS NULL
                RETURNING account_id, id, event, finding_id, outcome, status, reason, ms
            ) {_TOLD}""".encode(),
        {"reason": reason, "now": now, "actor": ACTOR},
    )
    return cursor.rowcount
