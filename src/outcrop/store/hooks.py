"""Store push hooks, count their deliveries, and keep the pushes for which no run was created yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.push import Hook, HookHost
from outcrop.lazy_logger import get_logger
from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.locks import AdvisoryLock

log = get_logger()

_MINUTE = "interval '60 s'"
_HOOK = """h.id, a.slug, h.host, h.created_at, h.created_by, date_trunc('second', w.used_at), h.ignored,
           h.ignored_at, h.ignored_repository, w.compare_at IS NOT NULL
    FROM hooks h JOIN accounts a ON a.id = h.account_id
    LEFT JOIN hook_windows w ON w.account_id = h.account_id AND w.hook_id = h.id"""


@dataclass(frozen=True, slots=True)
class HookOwner:
    """The account of a hook, and the encrypted secret of its sender."""

    account_id: int
    hook_id: UUID
    secret_box: bytes
    moment: datetime  # by the database's clock


async def insert(
    db: Connection, account_id: int, hook: Hook, *, token_digest: bytes, secret_box: bytes
) -> None:
    """Insert a hook. Of the token in its address only the digest is stored."""
    await db.execute(
        """INSERT INTO hooks (account_id, id, host, token_digest, secret_box, created_at, created_by)
           VALUES (%s, %s, %s, %s, %s, %s, %s)""",
        [account_id, hook.id, hook.host, token_digest, secret_box, hook.created_at, hook.created_by],
    )


async def select_all(db: Connection, account_id: int) -> list[Hook]:
    """Return the hooks of an account, oldest first."""
    cursor = await db.execute(
        f"SELECT {_HOOK} WHERE h.account_id = %s ORDER BY h.created_at, h.id".encode(), [account_id]
    )
    return [Hook(row[0], row[1], HookHost(row[2]), *row[3:]) for row in await cursor.fetchall()]


async def delete(db: Connection, account_id: int, hook_id: UUID) -> HookHost | None:
    """Delete a hook with its pushes; return its host, or None if the account has no such hook."""
    cursor = await db.execute(
        "DELETE FROM hooks WHERE account_id = %s AND id = %s RETURNING host", [account_id, hook_id]
    )
    row = await cursor.fetchone()
    return None if row is None else HookHost(row[0])


async def select_owner(db: Connection, host: HookHost, token_digest: bytes) -> HookOwner | None:
    """Return the account and the secret of the hook whose address has this token; None if there is none."""
    cursor = await db.execute(
        """SELECT account_id, id, secret_box, clock_timestamp() FROM hooks
           WHERE token_digest = %s AND host = %s""",
        [token_digest, host],
    )
    row = await cursor.fetchone()
    return None if row is None else HookOwner(*row)


# --- deliveries


async def count_delivery(db: Connection, account_id: int, hook_id: UUID, *, limit: int) -> int:
    """Count a delivery in the minute of the database's clock; return 0.

    If the minute has `limit` deliveries already, mark the hook for a comparison at the end of the minute, and
    return the seconds until then.
    """
    values = {"account": account_id, "hook": hook_id, "limit": limit}
    cursor = await db.execute(
        f"""INSERT INTO hook_windows AS w (account_id, hook_id, started_at, used, used_at)
            VALUES (%(account)s, %(hook)s, clock_timestamp(), 1, clock_timestamp())
            ON CONFLICT (account_id, hook_id) DO UPDATE SET
                started_at = CASE WHEN w.started_at <= clock_timestamp() - {_MINUTE} THEN clock_timestamp()
                                  ELSE w.started_at END,
                used = CASE WHEN w.started_at <= clock_timestamp() - {_MINUTE} THEN 1 ELSE w.used + 1 END,
                used_at = clock_timestamp()
            WHERE w.used < %(limit)s OR w.started_at <= clock_timestamp() - {_MINUTE}
            RETURNING 1""".encode(),
        values,
    )
    if await cursor.fetchone() is not None:
        return 0
    seconds, is_marked = await fetch_single_row(
        db,
        f"""SELECT ceil(extract(epoch FROM started_at + {_MINUTE} - clock_timestamp()))::int,
                   compare_at IS NOT NULL
            FROM hook_windows WHERE account_id = %s AND hook_id = %s""",
        [account_id, hook_id],
    )
    if not is_marked:
        await db.execute(
            f"""UPDATE hook_windows SET compare_at = started_at + {_MINUTE}
                WHERE account_id = %s AND hook_id = %s""".encode(),
            [account_id, hook_id],
        )
        log.warning("hook_limited", hook=str(hook_id), seconds=seconds)
    return max(1, int(seconds))


async def mark_behind(db: Connection, account_id: int, hook_id: UUID) -> None:
    """Mark a hook, one of whose deliveries was counted, for a comparison at once."""
    await db.execute(
        """UPDATE hook_windows SET compare_at = least(compare_at, clock_timestamp())
           WHERE account_id = %s AND hook_id = %s""",
        [account_id, hook_id],
    )


async def insert_delivery(db: Connection, account_id: int, hook_id: UUID, delivery: bytes) -> bool:
    """Insert the digest of a delivery's id; return False if it is known."""
    cursor = await db.execute(
        """INSERT INTO hook_deliveries (account_id, hook_id, delivery, received_at)
           VALUES (%s, %s, %s, clock_timestamp()) ON CONFLICT DO NOTHING""",
        [account_id, hook_id, delivery],
    )
    return cursor.rowcount > 0


async def delete_old_deliveries(db: Connection, *, days: int, most: int, limit: int) -> int:
    """Delete at most `limit` ids of deliveries of each hook: older than `days`, or beyond the newest `most`.

    Return their number. All accounts have the same limits.
    """
    cursor = await db.execute(
        """DELETE FROM hook_deliveries d USING hooks h, LATERAL (
               SELECT o.delivery FROM hook_deliveries o
               WHERE o.account_id = h.account_id AND o.hook_id = h.id AND o.received_at < greatest(
                   clock_timestamp() - make_interval(days => %(days)s),
                   (SELECT n.received_at FROM hook_deliveries n
                    WHERE n.account_id = h.account_id AND n.hook_id = h.id
                    ORDER BY n.received_at DESC OFFSET %(most)s - 1 LIMIT 1))
               ORDER BY o.received_at LIMIT %(limit)s) old
           WHERE d.account_id = h.account_id AND d.hook_id = h.id AND d.delivery = old.delivery""",
        {"days": days, "most": most, "limit": limit},
    )
    return cursor.rowcount


# --- pushes


@dataclass(frozen=True, slots=True)
class StoredPush:
    """A push for which no run was created yet, encrypted for its id."""

    id: UUID
    hook_id: UUID
    box: bytes


async def lock_pushes(db: Connection, account_id: int, repository: bytes) -> None:
    """Wait until no other transaction stores or takes pushes to a repository; lock others out.

    Otherwise a push could be stored for a job that has just taken the pushes.
    """
    await db.execute(
        "SELECT pg_advisory_xact_lock(%s, hashtext(%s))",
        [AdvisoryLock.PUSHES, f"{account_id} {repository.hex()}"],
    )


async def insert_push(db: Connection, account_id: int, push: StoredPush, repository: bytes) -> None:
    """Insert a push to the repository with this digest."""
    await db.execute(
        """INSERT INTO pushes (account_id, id, hook_id, repository, box, received_at)
           VALUES (%s, %s, %s, %s, %s, clock_timestamp())""",
        [account_id, push.id, push.hook_id, repository, push.box],
    )


async def take_pushes(db: Connection, account_id: int, repository: bytes) -> list[StoredPush]:
    """Delete and return the pushes to a repository, oldest first."""
    await lock_pushes(db, account_id, repository)
    cursor = await db.execute(
        """WITH taken AS (DELETE FROM pushes WHERE account_id = %s AND repository = %s
                          RETURNING id, hook_id, box, received_at)
           SELECT id, hook_id, box FROM taken ORDER BY received_at, id""",
        [account_id, repository],
    )
    return [StoredPush(*row) for row in await cursor.fetchall()]


async def count_ignored(
    db: Connection, account_id: int, hook_id: UUID, repository: str, *, pushes: int, now: datetime
) -> None:
    """Add to the pushes of a hook that no target covers; save the name of the last such repository."""
    await db.execute(
        """UPDATE hooks SET ignored = ignored + %s, ignored_at = %s, ignored_repository = %s
           WHERE account_id = %s AND id = %s""",
        [pushes, now, repository, account_id, hook_id],
    )


async def lock_behind(db: Connection, *, limit: int) -> list[tuple[int, UUID, HookHost]]:
    """Clear the marks of hooks whose repositories are to be compared; return (account id, hook id, host).

    Hooks of all accounts are returned, at most `limit`. They stay locked until the transaction ends, so a
    delivery that is refused meanwhile marks its hook again.
    """
    cursor = await db.execute(
        """UPDATE hook_windows w SET compare_at = NULL
           FROM (SELECT account_id, hook_id FROM hook_windows WHERE compare_at <= clock_timestamp()
                 ORDER BY compare_at LIMIT %s FOR UPDATE SKIP LOCKED) due, hooks h
           WHERE w.account_id = due.account_id AND w.hook_id = due.hook_id
             AND h.account_id = due.account_id AND h.id = due.hook_id
           RETURNING h.account_id, h.id, h.host""",
        [limit],
    )
    rows: Sequence[tuple[Any, ...]] = await cursor.fetchall()
    return [(account_id, hook_id, HookHost(host)) for account_id, hook_id, host in rows]
