"""Bring the rows of incidents up to date with the findings.

Triggers append each incident whose findings have changed to `incident_changes`. Here they are taken from
there, and the incidents are computed again from their findings. One process does this at a time for each
account, in short transactions. So writers of findings never wait for each other, and a change is never lost:
what is visible when it is taken is also visible to the statement that computes the incident.
"""

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any
from uuid import UUID

from outcrop.domain.errors import BusyError
from outcrop.store.db import Connection, fetch_single_row, limit_lock_wait
from outcrop.store.findings import rollups, rows
from outcrop.store.incidents import assignment_rules
from outcrop.store.locks import AdvisoryLock

_BATCH = 10_000  # changes that one transaction takes
_COLLECT_FROM = 2_000  # changes whose counts are collected before they are added
_REQUEST_BATCHES = 10  # a request applies at most so many, of _REQUEST_BATCH changes
_REQUEST_BATCH = 1_000

_DERIVED = (
    "places",
    "open_places",
    "composite_score",
    "validation_status",
    "validation_confidence",
    "validation_detail",
    "matched_text",
    "pattern_name",
    "pattern_secret_type",
    "first_seen_at",
    "last_seen_at",
    "closed_at",
    "due_at",
)
_COLUMNS = ", ".join(_DERIVED)
_EXCLUDED = ", ".join(f"excluded.{name}" for name in _DERIVED)
_STORED = ", ".join(f"i.{name}" for name in _DERIVED)
_COMPUTED = ", ".join(f"s.{name}" for name in _DERIVED)
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in _DERIVED)
_NO_PLACE = "NOT EXISTS (SELECT FROM findings f WHERE f.account_id = i.account_id AND f.incident_id = i.id)"


async def apply_all(db: Connection) -> int:
    """Apply the changes of every account; return their number."""
    cursor = await db.execute("SELECT DISTINCT account_id FROM incident_changes ORDER BY account_id")
    return sum([await apply_changes(db, account_id) for (account_id,) in await cursor.fetchall()])


async def apply_changes(db: Connection, account_id: int) -> int:
    """Apply the changes of an account that are visible now; return their number."""
    newest = await _select_newest(db, account_id)
    number = 0
    while newest is not None:
        async with db.transaction():
            await lock_incidents(db, account_id)
            is_large = await _has_changes(db, account_id, _COLLECT_FROM)
            async with rollups.collect_deltas(db) if is_large else nullcontext():
                taken = await _apply_batch(db, account_id, newest, _BATCH)
        if not taken:
            break
        number += taken
    return number


async def catch_up(db: Connection, account_id: int) -> None:
    """Apply an account's changes before a request reads its incidents.

    A large import may leave more than a request can apply. The rest is applied by the process that imports,
    and by the worker.
    """
    newest = await _select_newest(db, account_id)
    if newest is None:
        return
    for _ in range(_REQUEST_BATCHES):
        try:
            async with db.transaction(), limit_lock_wait(db):
                await lock_incidents(db, account_id)
                if not await _apply_batch(db, account_id, newest, _REQUEST_BATCH):
                    return
        except BusyError:  # another process applies many
            return


async def lock_incidents(db: Connection, account_id: int) -> None:
    """Wait until no other transaction writes several incidents of the account, and lock others out."""
    await db.execute("SELECT pg_advisory_xact_lock(%s, %s)", [AdvisoryLock.INCIDENTS, account_id])


async def refresh(db: Connection, account_id: int, ids: Collection[UUID]) -> list[UUID]:
    """Compute incidents again from their findings, in the caller's transaction, which holds the lock.

    Return the ids of those that are new.
    """
    cursor = await db.execute(
        f"""INSERT INTO incidents AS i (account_id, id, {_COLUMNS})
            SELECT account_id, id, {_COLUMNS} FROM incident_states
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")}
            ON CONFLICT (account_id, id) DO UPDATE SET {_ASSIGNMENTS}
            WHERE ({_STORED}) IS DISTINCT FROM ({_EXCLUDED})
            RETURNING id, xmax = 0""".encode(),  # a row that was updated has an xmax
        [account_id, sorted(ids)],
    )
    return [incident_id for incident_id, is_new in await cursor.fetchall() if is_new]


async def _select_newest(db: Connection, account_id: int) -> int | None:
    """Return the number of the newest change of an account; None if there is none."""
    (newest,) = await fetch_single_row(
        db, "SELECT max(n) FROM incident_changes WHERE account_id = %s", [account_id]
    )
    return None if newest is None else int(newest)


async def _has_changes(db: Connection, account_id: int, number: int) -> bool:
    """Whether an account has at least so many changes."""
    (found,) = await fetch_single_row(
        db,
        "SELECT count(*) FROM (SELECT FROM incident_changes WHERE account_id = %s LIMIT %s) first",
        [account_id, number],
    )
    return bool(found == number)


async def _apply_batch(db: Connection, account_id: int, newest: int, limit: int) -> int:
    """Apply at most `limit` changes up to number `newest`; return how many. The caller holds the lock."""
    cursor = await db.execute(
        """DELETE FROM incident_changes WHERE account_id = %s AND n = ANY(ARRAY(
               SELECT n FROM incident_changes WHERE account_id = %s AND n <= %s ORDER BY n LIMIT %s))
           RETURNING id, moved_to""",
        [account_id, account_id, newest, limit],
    )
    changes = await cursor.fetchall()
    if not changes:
        return 0
    ids = {id_ for change in changes for id_ in change if id_ is not None}
    created = await refresh(db, account_id, ids)
    await _move(db, account_id, {old: new for old, new in changes if new is not None})
    has_rules = await assignment_rules.apply(db, account_id, created)
    # New incidents, which an import has many of, have a place, and an assignee by a rule or a move only.
    old = ids.difference(created)
    if old:
        await db.execute(
            f"""DELETE FROM incidents i
                WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} AND {_NO_PLACE}""".encode(),
            [account_id, sorted(old)],
        )
    is_assigned = has_rules or any(new is not None for _, new in changes)
    await _copy_assignees(db, account_id, ids if is_assigned else old)
    return len(changes)


async def _move(db: Connection, account_id: int, moves: dict[UUID, UUID]) -> None:
    """Move the assignee and the comments of incidents without places to where their place has moved."""
    if not moves:
        return
    values: list[Any] = [list(moves), list(moves.values()), account_id]
    moved = "unnest(%s::uuid[], %s::uuid[]) AS move (old, new)"
    await db.execute(
        f"""UPDATE incidents n SET assignee = i.assignee
            FROM {moved} JOIN incidents i ON i.id = move.old
            WHERE i.{rows.OF_ACCOUNT} AND n.account_id = i.account_id AND n.id = move.new
              AND n.assignee IS NULL AND i.assignee IS NOT NULL AND {_NO_PLACE}""".encode(),
        values,
    )
    await db.execute(
        f"""UPDATE incident_comments c SET incident_id = move.new
            FROM {moved} JOIN incidents i ON i.id = move.old
            WHERE i.{rows.OF_ACCOUNT} AND c.account_id = i.account_id AND c.incident_id = i.id
              AND {_NO_PLACE}""".encode(),
        values,
    )


async def _copy_assignees(db: Connection, account_id: int, ids: Collection[UUID]) -> None:
    """Copy the assignees of incidents to those of their findings that have another one.

    A locked finding is skipped, and its incident stays pending: the lock may be held for minutes.
    """
    if not ids:
        return
    cursor = await db.execute(
        f"""SELECT f.id, i.id FROM incidents i
            JOIN findings f ON f.account_id = i.account_id AND f.incident_id = i.id
            WHERE i.{rows.OF_ACCOUNT} AND i.{rows.one_of("id")}
              AND f.assignee IS DISTINCT FROM i.assignee""".encode(),
        [account_id, sorted(ids)],
    )
    wrong: dict[UUID, UUID] = dict(await cursor.fetchall())
    if not wrong:
        return
    cursor = await db.execute(
        f"""WITH free AS MATERIALIZED (
                SELECT id FROM findings WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")}
                ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
            UPDATE findings f SET assignee = i.assignee FROM free, incidents i
            WHERE f.{rows.OF_ACCOUNT} AND f.id = free.id
              AND i.account_id = f.account_id AND i.id = f.incident_id RETURNING f.id""".encode(),
        [account_id, sorted(wrong), account_id],
    )
    written = {finding_id for (finding_id,) in await cursor.fetchall()}
    if skipped := {wrong[finding_id] for finding_id in wrong.keys() - written}:
        await db.execute(
            "INSERT INTO incident_changes (account_id, id) SELECT %s, unnest(%s::uuid[])",
            [account_id, sorted(skipped)],
        )


async def find_mismatches(db: Connection, sample: int) -> tuple[int, list[tuple[int, UUID]]]:
    """Compute about `sample` incidents again; return how many, and (account id, id) of those that differ.

    Those with pending changes are left out. Every account has a part in the sample.
    """
    cursor = await db.execute(
        f"""WITH picked AS (
                SELECT a.id AS account_id, c.id
                FROM (SELECT id, gen_random_uuid() AS start, count(*) OVER () AS accounts FROM accounts) a,
                LATERAL (
                    (SELECT id FROM incidents WHERE account_id = a.id AND id >= a.start
                     ORDER BY id LIMIT %s / a.accounts + 1)
                    UNION
                    (SELECT id FROM incidents WHERE account_id = a.id AND id < a.start
                     ORDER BY id LIMIT %s / a.accounts + 1)
                    UNION
                    (SELECT incident_id FROM findings WHERE account_id = a.id AND incident_id >= a.start
                     ORDER BY incident_id LIMIT %s / a.accounts + 1)) c
                WHERE NOT EXISTS (SELECT FROM incident_changes p WHERE p.account_id = a.id AND p.id = c.id))
            SELECT p.account_id, p.id, ({_STORED}) IS NOT DISTINCT FROM ({_COMPUTED})
                   AND NOT EXISTS (SELECT FROM findings f
                                   WHERE f.account_id = p.account_id AND f.incident_id = p.id
                                     AND f.assignee IS DISTINCT FROM i.assignee)
            FROM picked p LEFT JOIN incidents i ON i.account_id = p.account_id AND i.id = p.id
            LEFT JOIN LATERAL (SELECT * FROM incident_states s
                               WHERE s.account_id = p.account_id AND s.id = p.id) s ON true""".encode(),
        [sample, sample, sample],
    )
    found = await cursor.fetchall()
    return len(found), sorted((account_id, id_) for account_id, id_, is_equal in found if not is_equal)
