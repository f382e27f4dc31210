"""Targets at rest, and which of them are due."""

from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.target import Schedule, Target, TargetKind, TargetSpec
from outcrop.store.db import Connection

_TARGET = (
    "id, kind, name, include, exclude, options, schedule, created_at, next_run_at, credential_box IS NOT NULL"
)


async def lock_account(db: Connection, account_id: int) -> None:
    """Keep others from adding to this account until the transaction ends: what is looked up first cannot come meanwhile."""
    await db.execute("SELECT 1 FROM accounts WHERE id = %s FOR NO KEY UPDATE", [account_id])


async def insert(db: Connection, account_id: int, target: Target, box: bytes | None) -> None:
    """Store a target, with its credential where it has one; `box` is the credential encrypted."""
    spec = target.spec
    await db.execute(
        """INSERT INTO targets (account_id, id, kind, name, include, exclude, options, schedule, created_at, next_run_at, credential_box)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            *(
                account_id,
                target.id,
                spec.kind,
                spec.name,
                list(spec.include),
                list(spec.exclude),
                Jsonb(spec.options),
            ),
            *(target.schedule, target.created_at, target.next_run_at, box),
        ],
    )


async def update(db: Connection, account_id: int, target: Target, box: bytes | None) -> None:
    """Store how a target is looked at; its credential is replaced where there is a new one, and forgotten where it should have none."""
    spec = target.spec
    await db.execute(
        """UPDATE targets SET include = %s, exclude = %s, options = %s, schedule = %s, next_run_at = %s,
                  credential_box = CASE WHEN %s THEN coalesce(%s, credential_box) END
           WHERE account_id = %s AND id = %s""",
        [
            *(
                list(spec.include),
                list(spec.exclude),
                Jsonb(spec.options),
                target.schedule,
                target.next_run_at,
            ),
            *(target.has_credential, box, account_id, target.id),
        ],
    )


async def select(db: Connection, account_id: int, target_id: UUID) -> Target | None:
    cursor = await db.execute(
        f"SELECT {_TARGET} FROM targets WHERE account_id = %s AND id = %s".encode(), [account_id, target_id]
    )
    row = await cursor.fetchone()
    return None if row is None else _target(row)


async def select_all(db: Connection, account_id: int) -> list[Target]:
    """Oldest first."""
    cursor = await db.execute(
        f"SELECT {_TARGET} FROM targets WHERE account_id = %s ORDER BY created_at, id".encode(), [account_id]
    )
    return [_target(row) for row in await cursor.fetchall()]


async def delete(db: Connection, account_id: int, target_id: UUID) -> Target | None:
    """Remove a target and its credential; give what was removed."""
    statement = f"DELETE FROM targets WHERE account_id = %s AND id = %s RETURNING {_TARGET}"
    row = await (await db.execute(statement.encode(), [account_id, target_id])).fetchone()
    return None if row is None else _target(row)


async def lock_due(db: Connection, now: datetime) -> list[tuple[int, Target]]:
    """Lock the targets whose time has come, each with its account's id, the longest due first.

    The one query over all accounts: the scheduler serves them all, and shows what it reads to none. What another scheduler
    holds is left to it.
    """
    cursor = await db.execute(
        f"SELECT account_id, {_TARGET} FROM targets WHERE next_run_at <= %s ORDER BY next_run_at, id FOR UPDATE SKIP LOCKED".encode(),
        [now],
    )
    return [(row[0], _target(row[1:])) for row in await cursor.fetchall()]


async def update_next_run(
    db: Connection, account_id: int, target_id: UUID, next_run_at: datetime | None
) -> None:
    await db.execute(
        "UPDATE targets SET next_run_at = %s WHERE account_id = %s AND id = %s",
        [next_run_at, account_id, target_id],
    )


async def select_credential_box(db: Connection, account_id: int, target_id: UUID) -> bytes | None:
    """Give a target's encrypted credential, None where it has none or is gone."""
    cursor = await db.execute(
        "SELECT credential_box FROM targets WHERE account_id = %s AND id = %s", [account_id, target_id]
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


def _target(row: tuple[Any, ...]) -> Target:
    id_, kind, name, include, exclude, options, schedule, created_at, next_run_at, has_credential = row
    spec = TargetSpec(TargetKind(kind), name, tuple(include), tuple(exclude), options)
    return Target(id_, spec, Schedule(schedule), created_at, next_run_at, has_credential)
