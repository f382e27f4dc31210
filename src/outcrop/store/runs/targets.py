"""Store targets and their credentials, and find the targets that are due for a run."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.target import Schedule, Target, TargetKind, TargetSpec, split_stored_name
from outcrop.store.db import Connection
from outcrop.store.keyring import DamagedValueError, Keyring

_TARGET = (
    "id, kind, name, include, exclude, options, schedule, created_at, next_run_at,"
    " credential_box IS NOT NULL, url_box"
)
_ENCRYPT_BATCH_SIZE = 1000  # addresses that one transaction encrypts


async def insert(
    db: Connection,
    account_id: int,
    target: Target,
    credential_box: bytes | None,
    url_box: bytes | None = None,
) -> None:
    """Insert a target, with its encrypted credential, and its encrypted address if that has a query."""
    spec = target.spec
    assert spec.has_query == (url_box is not None)  # noqa: S101
    await db.execute(
        """INSERT INTO targets (account_id, id, kind, name, include, exclude, options, schedule, created_at,
                                next_run_at, credential_box, url_box)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            *(account_id, target.id, spec.kind, spec.stored_name),
            *(list(spec.include), list(spec.exclude), Jsonb(spec.options)),
            *(target.schedule, target.created_at, target.next_run_at, credential_box, url_box),
        ],
    )


async def update(db: Connection, account_id: int, target: Target, credential_box: bytes | None) -> None:
    """Save the paths, options, schedule and credential of a target.

    `credential_box` replaces the stored credential; None keeps it. If the target has no credential
    (`has_credential`), the stored one is erased.
    """
    spec = target.spec
    await db.execute(
        """UPDATE targets SET include = %s, exclude = %s, options = %s, schedule = %s, next_run_at = %s,
                  credential_box = CASE WHEN %s THEN coalesce(%s, credential_box) END
           WHERE account_id = %s AND id = %s""",
        [
            *(list(spec.include), list(spec.exclude), Jsonb(spec.options)),
            *(target.schedule, target.next_run_at),
            *(target.has_credential, credential_box, account_id, target.id),
        ],
    )


async def select(db: Connection, account_id: int, target_id: UUID) -> Target | None:
    """Return one target of the account."""
    cursor = await db.execute(
        f"SELECT {_TARGET} FROM targets WHERE account_id = %s AND id = %s".encode(), [account_id, target_id]
    )
    row = await cursor.fetchone()
    return None if row is None else _build_target(row)


async def select_all(db: Connection, account_id: int) -> list[Target]:
    """Return the account's targets, oldest first."""
    cursor = await db.execute(
        f"SELECT {_TARGET} FROM targets WHERE account_id = %s ORDER BY created_at, id".encode(), [account_id]
    )
    return [_build_target(row) for row in await cursor.fetchall()]


async def delete(db: Connection, account_id: int, target_id: UUID) -> Target | None:
    """Delete a target and its credential; return the deleted target, or None if it did not exist."""
    statement = f"DELETE FROM targets WHERE account_id = %s AND id = %s RETURNING {_TARGET}"
    row = await (await db.execute(statement.encode(), [account_id, target_id])).fetchone()
    return None if row is None else _build_target(row)


async def lock_due(db: Connection, now: datetime, *, limit: int) -> list[tuple[int, Target]]:
    """Lock due targets of all accounts, at most `limit`; return (account id, target), the longest due first.

    Targets that another scheduler has locked are skipped. The scheduler serves all accounts and shows no
    account the targets of another.
    """
    cursor = await db.execute(
        f"""SELECT account_id, {_TARGET} FROM targets WHERE next_run_at <= %s
            ORDER BY next_run_at, id LIMIT %s FOR UPDATE SKIP LOCKED""".encode(),
        [now, limit],
    )
    return [(row[0], _build_target(row[1:])) for row in await cursor.fetchall()]


async def update_next_run(
    db: Connection, account_id: int, target_id: UUID, next_run_at: datetime | None
) -> None:
    """Save the time of a target's next run; None if it has none."""
    await db.execute(
        "UPDATE targets SET next_run_at = %s WHERE account_id = %s AND id = %s",
        [next_run_at, account_id, target_id],
    )


async def select_credential_box(db: Connection, account_id: int, target_id: UUID) -> bytes | None:
    """Return a target's encrypted credential; None if it has none or does not exist."""
    cursor = await db.execute(
        "SELECT credential_box FROM targets WHERE account_id = %s AND id = %s", [account_id, target_id]
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


def open_target(keys: Keyring, account_id: int, target: Target) -> Target:
    """Return a target with its whole address; as it is stored if that is damaged, or not encrypted."""
    if target.url_box is None:
        return target
    try:
        name = keys.open_url(target.url_box, account_id, target.id)
    except DamagedValueError:  # `outcrop doctor` reports it; a run of the target fails
        return target
    return replace(target, spec=replace(target.spec, name=name), url_box=None)


async def encrypt_urls(db: Connection, keys: Keyring) -> int:
    """Encrypt addresses with a query that an older release has stored in clear text; return how many."""
    cursor = await db.execute(
        """SELECT account_id, id, kind, name FROM targets
           WHERE kind IN ('site', 'page') AND strpos(name, '?') > 0
           LIMIT %s FOR NO KEY UPDATE SKIP LOCKED""",
        [_ENCRYPT_BATCH_SIZE],
    )
    rows = await cursor.fetchall()
    for account_id, id_, kind, name in rows:
        await db.execute(
            "UPDATE targets SET name = %s, url_box = %s WHERE account_id = %s AND id = %s",
            [
                *(TargetSpec(TargetKind(kind), name).stored_name, keys.seal_url(name, account_id, id_)),
                *(account_id, id_),
            ],
        )
    return len(rows)


def _build_target(row: tuple[Any, ...]) -> Target:
    """Return the target of a row with the columns of `_TARGET`."""
    id_, kind, name, include, exclude, options, schedule, created_at, next_run_at, *boxes = row
    name, host_url = split_stored_name(TargetKind(kind), name)
    spec = TargetSpec(TargetKind(kind), name, tuple(include), tuple(exclude), options, host_url)
    return Target(id_, spec, Schedule(schedule), created_at, next_run_at, *boxes)
