"""Store what was last seen of a code host that is asked for pushes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class PollState:
    """The ids of the newest known events and the ETag of the last response; None before the first one."""

    known: list[str] | None
    etag: str | None


async def claim_due(db: Connection, *, limit: int, lease: float) -> list[tuple[int, UUID]]:
    """Return (account id, target id) of targets of all accounts that are due, at most `limit`.

    They are due again after `lease` seconds, unless `save` sets another time.
    """
    cursor = await db.execute(
        """INSERT INTO polls (account_id, target_id, due_at)
           SELECT t.account_id, t.id, clock_timestamp() + make_interval(secs => %(lease)s)
           FROM targets t LEFT JOIN polls p ON p.account_id = t.account_id AND p.target_id = t.id
           WHERE t.options ->> 'poll' = 'true' AND (p.due_at IS NULL OR p.due_at <= clock_timestamp())
           ORDER BY p.due_at NULLS FIRST LIMIT %(limit)s
           FOR NO KEY UPDATE OF t SKIP LOCKED
           ON CONFLICT (account_id, target_id) DO UPDATE SET due_at = excluded.due_at
           RETURNING account_id, target_id""",
        {"lease": lease, "limit": limit},
    )
    return list(await cursor.fetchall())


async def select(db: Connection, account_id: int, target_id: UUID) -> PollState | None:
    """Return what is known of a target's host; None if the target was never due."""
    cursor = await db.execute(
        "SELECT known, etag FROM polls WHERE account_id = %s AND target_id = %s", [account_id, target_id]
    )
    row = await cursor.fetchone()
    return None if row is None else PollState(*row)


async def save(
    db: Connection,
    account_id: int,
    target_id: UUID,
    *,
    before: PollState,
    known: Sequence[str] | None,
    etag: str | None,
    seconds: float,
) -> bool:
    """Save the result of a poll and the time of the next one; `known` is None if nothing has changed.

    Return False and save nothing if another process has polled since `before` was read.
    """
    cursor = await db.execute(
        """UPDATE polls SET known = coalesce(%s, known), etag = %s,
                  due_at = clock_timestamp() + make_interval(secs => %s)
           WHERE account_id = %s AND target_id = %s AND known IS NOT DISTINCT FROM %s""",
        [None if known is None else list(known), etag, seconds, account_id, target_id, before.known],
    )
    return cursor.rowcount > 0
