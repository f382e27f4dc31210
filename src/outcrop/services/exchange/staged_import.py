"""Merge the staged records of an import over the API with the account's findings, in one transaction."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from outcrop.domain.errors import BadInputError
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.services.exchange.formats import ImportFormat, RecordError
from outcrop.services.exchange.import_records import ImportRecord, RecordBuilder
from outcrop.services.exchange.importer import merge_batches
from outcrop.services.exchange.recognise import Recogniser
from outcrop.services.exchange.upload import MERGE_LOCK, enqueue_merge, open_batch
from outcrop.store import audit, imports, secret_policy
from outcrop.store.db import WORKER_IDLE_TIMEOUT, Connection, Pool, connect, current_time
from outcrop.store.findings import bulk
from outcrop.store.imports import ClaimedImport, ImportFailure
from outcrop.store.incidents import pending
from outcrop.store.keyring import Keyring

MAX_ATTEMPTS = 5
ABANDONED_AFTER = timedelta(hours=1)  # longer than any upload may take
_BULK_RECORDS = 20_000  # from here on the tables are worth a vacuum afterwards


@dataclass(frozen=True, slots=True)
class MergeContext:
    """The database and the keys of a worker that merges imports."""

    pool: Pool
    keys: Keyring
    url: str
    ruleset: RuleSet | None = None  # recognises the credentials of the reports


async def merge_import(context: MergeContext, account_id: int, import_id: UUID) -> None:
    """Merge a staged import: all of it, or nothing if a record is invalid. Do nothing if it is finished.

    A transaction that the worker's death ends leaves nothing behind; another worker begins again.
    """
    async with context.pool.connection() as db:
        claimed = await imports.claim(db, account_id, import_id)
    if claimed is None:
        return
    if claimed.attempt > MAX_ATTEMPTS:
        await _fail(context, account_id, claimed, ImportFailure(None, f"{MAX_ATTEMPTS} attempts did not end"))
        return
    try:
        # A connection of its own: the transaction may take minutes, longer than a statement of the pool.
        async with await connect(context.url, idle_timeout=WORKER_IDLE_TIMEOUT) as db:
            await _merge_claimed(context, db, account_id, claimed)
            await pending.apply_changes(db, account_id)
    except BadInputError as error:
        number = error.number if isinstance(error, RecordError) else None
        failure = ImportFailure(number, error.message)
        await _fail(context, account_id, claimed, failure)
    except asyncio.CancelledError:
        async with context.pool.connection() as db:
            await imports.release(db, account_id, claimed)
        raise


async def _merge_claimed(
    context: MergeContext, db: Connection, account_id: int, claimed: ClaimedImport
) -> None:
    """Merge an import and complete it in the same transaction, unless another worker has claimed it."""
    is_large = claimed.records > _BULK_RECORDS
    async with bulk.open_bulk_import(db) if is_large else bulk.open_small_import(db):
        if not await imports.lock_claimed(db, account_id, claimed):
            return
        now = await current_time(db)
        builder = RecordBuilder(
            context.keys,
            account_id,
            now,
            keep_secrets=await secret_policy.keeps_secrets(db),
            format_=ImportFormat(claimed.format),
            restore=False,
            may_restore=False,
            repo=claimed.repo,
            commit=claimed.commit,
            recogniser=None if (ruleset := context.ruleset) is None else Recogniser(lambda: ruleset),
        )
        summary = await merge_batches(
            *(db, context.keys, account_id, _read_staged(db, context.keys, account_id, claimed, builder)),
            by=claimed.by,
            now=now,
            on_new=partial(imports.add_news, db, account_id, claimed.id) if claimed.events else None,
        )
        counts = {"new": summary.new, "updated": summary.changed, "unchanged": summary.unchanged}
        await imports.finish(db, account_id, claimed.id, **counts)
        detail = {"lines": summary.lines, **counts, "format": claimed.format}
        line = audit.AuditLine(now, claimed.by, "findings.import", str(claimed.id), detail=detail)
        await audit.append(db, account_id, line)
    if is_large:
        await bulk.vacuum_tables(db, records=claimed.records)


async def _read_staged(
    db: Connection, keys: Keyring, account_id: int, claimed: ClaimedImport, builder: RecordBuilder
) -> AsyncGenerator[list[ImportRecord]]:
    """Yield the rows of each staged batch; a thread builds them."""
    number = 0
    while (batch := await imports.select_batch(db, account_id, claimed.id, number)) is not None:
        records = open_batch(keys, account_id, batch)
        yield await asyncio.to_thread(lambda: list(builder.build_all(iter(records), lambda _: None)))  # noqa: B023
        number += 1


async def _fail(
    context: MergeContext, account_id: int, claimed: ClaimedImport, failure: ImportFailure
) -> None:
    """End an import as failed, with an audit line."""
    async with context.pool.connection() as db, db.transaction():
        if not await imports.lock_claimed(db, account_id, claimed):
            return
        await imports.fail(db, account_id, claimed.id, failure)
        detail = {"record": failure.record, "error": failure.message}
        moment = await current_time(db)
        line = audit.AuditLine(moment, claimed.by, "findings.import", str(claimed.id), "failed", detail)
        await audit.append(db, account_id, line)


async def tidy_imports(pool: Pool) -> int:
    """Queue imports again that have no job, and delete what dead uploads left; return how many changed."""
    async with pool.connection() as db, db.transaction():
        unqueued = await imports.select_unqueued(db, MERGE_LOCK)
        for account_id, import_id in unqueued:
            await enqueue_merge(db, account_id, import_id)
        abandoned = await imports.delete_abandoned(db, after=ABANDONED_AFTER)
        return len(unqueued) + abandoned + await imports.forget_keys(db)
