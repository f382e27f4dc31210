"""Store imports over the API. An import that is still received is in no list."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.paging import Page
from outcrop.store.db import Connection, snapshot
from outcrop.store.locks import AdvisoryLock


class ImportStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """Why an import failed, and the number of the record; None if no single record is the reason."""

    record: int | None
    message: str


@dataclass(frozen=True, slots=True)
class ReportImport:
    id: UUID
    status: ImportStatus
    format: str
    repo: str | None  # the repository that the sender named
    commit: str | None
    created_at: datetime
    finished_at: datetime | None = None
    records: int = 0
    findings_new: int = 0
    findings_updated: int = 0
    findings_unchanged: int = 0
    error: ImportFailure | None = None


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """Some records of an import, encrypted for the id of the batch."""

    id: UUID
    number: int  # the order of the batches
    box: bytes


@dataclass(frozen=True, slots=True)
class NewImport:
    """What is known of an import when its report is complete."""

    format: str
    repo: str | None
    commit: str | None
    events: bool
    records: int
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class ClaimedImport:
    """An import that this worker merges. `attempt` is the fencing token: a later claim has a higher one."""

    id: UUID
    format: str
    repo: str | None
    commit: str | None
    events: bool
    records: int
    by: str
    attempt: int


_KEPT_SINCE = "clock_timestamp() - interval '7 days'"  # of idempotency keys
_SELECT = """
    SELECT id, status, format, repo, commit_id, date_trunc('second', created_at), finished_at,
           records, findings_new, findings_updated, findings_unchanged, error_record, error_message
    FROM imports WHERE account_id = %s AND status <> 'receiving'
"""


async def select(db: Connection, account_id: int, import_id: UUID) -> ReportImport | None:
    """Return one import of the account."""
    cursor = await db.execute(f"{_SELECT} AND id = %s".encode(), [account_id, import_id])
    row = await cursor.fetchone()
    return None if row is None else _build_import(row)


async def select_page(db: Connection, account_id: int, *, page: int, per_page: int) -> Page[ReportImport]:
    """Return a page of the account's imports, newest first."""
    async with snapshot(db):
        cursor = await db.execute(
            "SELECT count(*) FROM imports WHERE account_id = %s AND status <> 'receiving'", [account_id]
        )
        row = await cursor.fetchone()
        total = row[0] if row else 0
        offset = (page - 1) * per_page
        if offset >= total:
            return Page([], total, page, per_page)
        cursor = await db.execute(
            f"{_SELECT} ORDER BY created_at DESC, id DESC OFFSET %s LIMIT %s".encode(),
            [account_id, offset, per_page],
        )
        return Page([_build_import(row) for row in await cursor.fetchall()], total, page, per_page)


def _build_import(row: tuple[Any, ...]) -> ReportImport:
    """Return the import of a row of _SELECT."""
    id_, status, format_, repo, commit, created_at, finished_at, *counts, record, message = row
    records, new, updated, unchanged = counts
    return ReportImport(
        id_,
        ImportStatus(status),
        format_,
        repo,
        commit,
        created_at,
        finished_at,
        records,
        findings_new=new,
        findings_updated=updated,
        findings_unchanged=unchanged,
        error=None if message is None else ImportFailure(record, message),
    )


# --- receiving


async def insert_receiving(db: Connection, account_id: int, import_id: UUID, *, by: str) -> None:
    """Insert an import whose report is not complete yet."""
    await db.execute(
        """INSERT INTO imports (account_id, id, status, format, events, created_by, created_at)
           VALUES (%s, %s, 'receiving', '', false, %s, clock_timestamp())""",
        [account_id, import_id, by],
    )


async def insert_batch(db: Connection, account_id: int, import_id: UUID, batch: StagedBatch) -> None:
    """Insert a batch of an import's records."""
    await db.execute(
        "INSERT INTO import_batches (account_id, id, import_id, number, box) VALUES (%s, %s, %s, %s, %s)",
        [account_id, batch.id, import_id, batch.number, batch.box],
    )


async def select_by_key(db: Connection, account_id: int, key: str) -> tuple[UUID, bytes] | None:
    """Return id and request digest of the import that was made with an idempotency key."""
    cursor = await db.execute(
        f"""SELECT id, request_digest FROM imports
            WHERE account_id = %s AND idempotency_key = %s AND created_at > {_KEPT_SINCE}""".encode(),
        [account_id, key],
    )
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1])


async def queue(
    db: Connection, account_id: int, import_id: UUID, new: NewImport, *, idempotency_key: str | None
) -> tuple[UUID, bytes] | None:
    """Complete an import that was received; return None.

    If another import has the idempotency key already, change nothing and return its id and request digest.
    """
    if idempotency_key is not None:
        # Requests with the same key come one after the other, so that each sees the import of the first.
        await db.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [AdvisoryLock.IMPORT_KEY, idempotency_key]
        )
        if (earlier := await select_by_key(db, account_id, idempotency_key)) is not None:
            return earlier
        await db.execute(
            "UPDATE imports SET idempotency_key = NULL WHERE account_id = %s AND idempotency_key = %s",
            [account_id, idempotency_key],
        )
    await db.execute(
        """UPDATE imports SET status = 'queued', format = %s, repo = %s, commit_id = %s, events = %s,
               records = %s, request_digest = %s, idempotency_key = %s
           WHERE account_id = %s AND id = %s""",
        [
            *(new.format, new.repo, new.commit, new.events, new.records, new.request_digest),
            *(idempotency_key, account_id, import_id),
        ],
    )
    return None


async def delete(db: Connection, account_id: int, import_id: UUID) -> None:
    """Delete an import whose report was not received completely, with its batches."""
    await db.execute(
        "DELETE FROM imports WHERE account_id = %s AND id = %s AND status = 'receiving'",
        [account_id, import_id],
    )


# --- merging


async def claim(db: Connection, account_id: int, import_id: UUID) -> ClaimedImport | None:
    """Mark an unfinished import as running, with the next attempt; None if it is finished."""
    cursor = await db.execute(
        """UPDATE imports SET status = 'running', attempts = attempts + 1
           WHERE account_id = %s AND id = %s AND status IN ('queued', 'running')
           RETURNING id, format, repo, commit_id, events, records, created_by, attempts""",
        [account_id, import_id],
    )
    row = await cursor.fetchone()
    return None if row is None else ClaimedImport(*row)


async def lock_claimed(db: Connection, account_id: int, claimed: ClaimedImport) -> bool:
    """Lock an import until the transaction ends; return whether no other worker has claimed it since."""
    cursor = await db.execute(
        """SELECT FROM imports WHERE account_id = %s AND id = %s AND status = 'running' AND attempts = %s
           FOR NO KEY UPDATE""",
        [account_id, claimed.id, claimed.attempt],
    )
    return await cursor.fetchone() is not None


async def release(db: Connection, account_id: int, claimed: ClaimedImport) -> None:
    """Queue an import again whose worker stops; the attempt does not count."""
    await db.execute(
        """UPDATE imports SET status = 'queued', attempts = attempts - 1
           WHERE account_id = %s AND id = %s AND status = 'running' AND attempts = %s""",
        [account_id, claimed.id, claimed.attempt],
    )


async def select_batch(db: Connection, account_id: int, import_id: UUID, number: int) -> StagedBatch | None:
    """Return a batch of an import's records; None after the last one."""
    cursor = await db.execute(
        "SELECT id, number, box FROM import_batches WHERE account_id = %s AND import_id = %s AND number = %s",
        [account_id, import_id, number],
    )
    row = await cursor.fetchone()
    return None if row is None else StagedBatch(*row)


async def finish(
    db: Connection, account_id: int, import_id: UUID, *, new: int, updated: int, unchanged: int
) -> None:
    """Complete an import, and delete its staged records."""
    await db.execute(
        """UPDATE imports SET status = 'completed', finished_at = clock_timestamp(),
               findings_new = %s, findings_updated = %s, findings_unchanged = %s
           WHERE account_id = %s AND id = %s""",
        [new, updated, unchanged, account_id, import_id],
    )
    await _delete_batches(db, account_id, import_id)


async def fail(db: Connection, account_id: int, import_id: UUID, failure: ImportFailure) -> None:
    """End an unfinished import as failed, and delete its staged records."""
    await db.execute(
        """UPDATE imports SET status = 'failed', finished_at = clock_timestamp(),
               error_record = %s, error_message = %s
           WHERE account_id = %s AND id = %s AND status IN ('queued', 'running')""",
        [failure.record, failure.message, account_id, import_id],
    )
    await _delete_batches(db, account_id, import_id)


async def _delete_batches(db: Connection, account_id: int, import_id: UUID) -> None:
    """Delete the staged records of an import."""
    await db.execute(
        "DELETE FROM import_batches WHERE account_id = %s AND import_id = %s", [account_id, import_id]
    )


# --- new findings whose event is still to be sent


async def add_news(db: Connection, account_id: int, import_id: UUID, finding_ids: Sequence[UUID]) -> None:
    """Note new findings of an import, whose events are sent after their validation."""
    await db.execute(
        """INSERT INTO import_news (account_id, import_id, finding_id) SELECT %s, %s, unnest(%s::uuid[])
           ON CONFLICT DO NOTHING""",
        [account_id, import_id, list(finding_ids)],
    )


async def select_news(db: Connection, account_id: int, import_id: UUID, *, limit: int) -> list[UUID]:
    """Return findings of an import whose event is still to be sent."""
    cursor = await db.execute(
        """SELECT finding_id FROM import_news WHERE account_id = %s AND import_id = %s
           ORDER BY finding_id LIMIT %s""",
        [account_id, import_id, limit],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def take_news(db: Connection, account_id: int, finding_ids: Sequence[UUID]) -> list[UUID]:
    """Delete the notes of findings; return those that had one, whose event the caller must write."""
    cursor = await db.execute(
        "DELETE FROM import_news WHERE account_id = %s AND finding_id = ANY(%s) RETURNING finding_id",
        [account_id, list(finding_ids)],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


# --- all accounts


async def delete_abandoned(db: Connection, *, after: timedelta) -> int:
    """Delete imports that began to be received that long ago: their process has died; return how many."""
    cursor = await db.execute(
        "DELETE FROM imports WHERE status = 'receiving' AND created_at < clock_timestamp() - %s", [after]
    )
    return cursor.rowcount


async def forget_keys(db: Connection) -> int:
    """Delete idempotency keys that are no longer kept; return how many."""
    cursor = await db.execute(
        f"""UPDATE imports SET idempotency_key = NULL
            WHERE idempotency_key IS NOT NULL AND created_at <= {_KEPT_SINCE}""".encode()
    )
    return cursor.rowcount


async def select_unqueued(db: Connection, lock_prefix: str) -> list[tuple[int, UUID]]:
    """Return the imports without a job that are unfinished or have events to send.

    `lock_prefix` and the account's id are the lock of the jobs.
    """
    cursor = await db.execute(
        """SELECT i.account_id, i.id FROM imports i
           WHERE (i.account_id, i.id) IN (
                     SELECT account_id, id FROM imports WHERE status IN ('queued', 'running')
                     UNION SELECT account_id, import_id FROM import_news)
             AND i.created_at < clock_timestamp() - interval '30 s'
             AND NOT EXISTS (SELECT FROM procrastinate_jobs j
                             WHERE j.lock = %s || i.account_id AND j.status IN ('todo', 'doing')
                               AND j.args ->> 'import_id' = i.id::text)
           FOR NO KEY UPDATE OF i SKIP LOCKED""",
        [lock_prefix],
    )
    return [(account_id, import_id) for account_id, import_id in await cursor.fetchall()]


async def fail_unfinished(db: Connection, message: str) -> int:
    """End all unfinished imports as failed, because their records are not in the backup; return how many."""
    await db.execute("DELETE FROM imports WHERE status = 'receiving'")
    cursor = await db.execute(
        """UPDATE imports SET status = 'failed', finished_at = clock_timestamp(), error_message = %s
           WHERE status IN ('queued', 'running')""",
        [message],
    )
    return cursor.rowcount
