"""Apply one action to all findings that match a filter: a background job in small transactions.

The findings are those that match when the job begins. A job that its worker leaves goes on in another one,
with the first batch that was not committed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.finding import Finding, TriageAction, Validation
from outcrop.domain.paging import FindingQuery
from outcrop.domain.secret import MaskedText
from outcrop.domain.triage.bulk import BulkTriage
from outcrop.limits import BULK_FINDINGS
from outcrop.services import findings
from outcrop.store import audit
from outcrop.store.db import Connection, Pool, current_time
from outcrop.store.findings import bulk_triages, listing
from outcrop.store.keyring import Keyring
from outcrop.store.people import accounts
from outcrop.store.runs import jobs

BULK_TASK = "triage_all"
_BATCH = 100  # findings that one transaction triages


async def select_matching(
    db: Connection, account_id: int, query: FindingQuery, *, expected: int
) -> list[UUID]:
    """Return the ids of the findings that match the query now. Not for use in a transaction.

    Raise BadInputError if their number is not the expected one, or too high.
    """
    query = replace(query, page=1, per_page=BULK_FINDINGS)
    total, ids = await listing.select_page_ids(db, account_id, query)
    if total > BULK_FINDINGS:
        raise BadInputError(f"at most {BULK_FINDINGS:,} findings can be changed at once: use more filters")
    if total != expected or not total:
        raise BadInputError(f"meanwhile {total:,} findings match, not {expected:,}: look at them first")
    return ids


async def start_bulk(
    db: Connection,
    account_id: int,
    ids: Sequence[UUID],
    action: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> BulkTriage:
    """Store a job for these findings, and queue it; raise BadInputError if the account has one."""
    await accounts.lock_account(db, account_id)
    if await bulk_triages.select_running(db, account_id) is not None:
        raise BadInputError("another action on many findings is still running: wait until it has ended")
    bulk = BulkTriage(uuid4(), action, by, now, len(ids))
    await bulk_triages.insert(db, account_id, bulk, ids, note)
    detail = {"action": action.value, "findings": len(ids)}
    await audit.append(db, account_id, audit.AuditLine(now, by, "bulk.start", str(bulk.id), detail=detail))
    arguments = {"account_id": account_id, "bulk_id": str(bulk.id)}
    await jobs.defer_jobs(db, BULK_TASK, [(f"bulk {account_id}", arguments)], jobs.INTERACTIVE)
    return bulk


async def count_matching(db: Connection, account_id: int, query: FindingQuery) -> tuple[int, int]:
    """Return how many findings match, and how many of them are valid."""
    query = replace(query, page=1, per_page=1)
    total = (await listing.select_page(db, account_id, query)).total
    if query.validation is not None:
        return total, total if query.validation is Validation.VALID else 0
    valid = await listing.select_page(db, account_id, replace(query, validation=Validation.VALID))
    return total, valid.total


async def list_matching_valid(
    db: Connection, account_id: int, query: FindingQuery, limit: int
) -> list[Finding]:
    """Return the valid findings that match, the first of the list."""
    if query.validation not in {None, Validation.VALID}:
        return []
    query = replace(query, validation=Validation.VALID, page=1, per_page=limit)
    return (await listing.select_page(db, account_id, query)).items


async def get_bulk(db: Connection, account_id: int, bulk_id: UUID) -> BulkTriage:
    """Return a job; raise NotFoundError if the account has none with this id."""
    if (bulk := await bulk_triages.select(db, account_id, bulk_id)) is None:
        raise NotFoundError("there is no such action")
    return bulk


async def find_running(db: Connection, account_id: int) -> BulkTriage | None:
    """Return the job of the account that has not ended; None if there is none."""
    return await bulk_triages.select_running(db, account_id)


async def stop_bulk(db: Connection, account_id: int, bulk_id: UUID, *, by: str, now: datetime) -> None:
    """Stop a job. What it has changed stays."""
    await get_bulk(db, account_id, bulk_id)
    if await bulk_triages.finish(db, account_id, bulk_id, now=now, stopped_by=by):
        await audit.append(db, account_id, audit.AuditLine(now, by, "bulk.stop", str(bulk_id)))


async def run_bulk(pool: Pool, keys: Keyring, account_id: int, bulk_id: UUID) -> None:
    """Do the work of a job, batch by batch, until it has ended."""
    is_open = True
    while is_open:
        async with pool.connection() as db, db.transaction():
            is_open = await _run_batch(db, keys, account_id, bulk_id)


async def _run_batch(db: Connection, keys: Keyring, account_id: int, bulk_id: UUID) -> bool:
    """Triage the next findings of a job; return False if it has ended."""
    batch = await bulk_triages.lock_batch(db, account_id, bulk_id, _BATCH)
    if batch is None:
        return False
    now = await current_time(db)
    if not batch.finding_ids:
        await bulk_triages.finish(db, account_id, bulk_id, now=now)
        return False
    outcomes = await findings.triage(
        db, keys, account_id, batch.finding_ids, batch.action, note=batch.note, by=batch.by, now=now
    )
    results = Counter(result for _, result in outcomes)
    await bulk_triages.add_results(db, account_id, bulk_id, results)
    return True
