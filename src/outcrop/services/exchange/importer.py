"""Import findings from a file into an account, in one transaction and in bounded memory.

1. A thread parses the records of the file and encrypts their credentials (`import_records`).
2. Batches are merged with the stored findings (`merge`) and written.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import BinaryIO
from uuid import UUID

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.services.exchange.formats import ImportFormat, read_records
from outcrop.services.exchange.import_records import ImportRecord, RecordBuilder
from outcrop.services.exchange.merge import merge_with_stored
from outcrop.services.exchange.news import make_due, record_news
from outcrop.services.exchange.recognise import Recogniser
from outcrop.sources.repository_address import normalise_repository
from outcrop.store import audit, secret_policy
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, scores
from outcrop.store.incidents import pending
from outcrop.store.keyring import Keyring

_BATCH_SIZE = 10_000  # findings that are written with one statement
_FLUSH_INDEX_EVERY = 40_000  # findings; the pending list of the search index then has about 64 MB
_COUNT_EVERY = 200_000  # findings; what is kept of them until then has about 50 MB


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The numbers of imported records, and of findings that are new, changed and unchanged."""

    lines: int
    new: int
    updated: int  # records about findings that existed
    changed: int = field(default=0, compare=False)
    unchanged: int = field(default=0, compare=False)
    unplaced: int = field(default=0, compare=False)  # records whose source is the report itself


OnNew = Callable[[list[UUID]], Awaitable[None]]  # called with the ids of new findings of reports


async def import_findings(
    db: Connection,
    keys: Keyring,
    account: Account,
    file: BinaryIO,
    *,
    by: str,
    now: datetime,
    progress: Callable[[int], None],
    format_: ImportFormat = ImportFormat.OUTCROP,
    restore: bool = False,
    columns: Mapping[str, str] | None = None,
    repo: str | None = None,
    commit: str | None = None,
    load_rules: Callable[[], RuleSet] | None = None,
    sends_events: bool = False,
) -> ImportSummary:
    """Import all findings of a file, or none if one is invalid.

    A record either restores a finding, which replaces all its fields, or is a scanner's report
    (`ImportRecord.restores`). With `restore`, every record restores. `progress` gets the number of bytes read
    so far. `columns` are the columns of CSV by field. `repo` and `commit` are those of records that
    name none. `load_rules` loads the rules that recognise the credentials of reports; without
    it no rule is searched for. With `sends_events`, `finding.new` is sent for each new open finding.
    Raise BadInputError if `repo` is no address, or the file is not a report.
    """
    if repo is not None and normalise_repository(repo) is None:
        raise BadInputError("--repo should be the address of a repository")
    format_, file_records = read_records(file, format_, columns)
    keep_secrets = await secret_policy.keeps_secrets(db)
    builder = RecordBuilder(
        keys,
        account.id,
        now,
        keep_secrets=keep_secrets,
        format_=format_,
        restore=restore,
        repo=repo,
        commit=commit,
        recogniser=None if load_rules is None else Recogniser(load_rules),
    )
    batches = _split_batches(builder.build_all(file_records, progress))
    async with bulk.open_bulk_import(db):
        summary = await merge_batches(
            db, keys, account.id, _read_ahead(batches), by=by, now=now, sends_events=sends_events
        )
        # The audit line has the counts, so it is written last, in the same transaction.
        detail = {"lines": summary.lines, "new": summary.new, "updated": summary.updated}
        line = audit.AuditLine(now, by, "findings.import", account.slug, detail=detail)
        await audit.append(db, account.id, line)
    await bulk.vacuum_tables(db, records=summary.lines)
    await pending.apply_changes(db, account.id)
    return replace(summary, unplaced=builder.unplaced)


async def merge_batches(
    db: Connection,
    keys: Keyring,
    account_id: int,
    batches: AsyncGenerator[list[ImportRecord]],
    *,
    by: str,
    now: datetime,
    sends_events: bool = False,
    on_new: OnNew | None = None,
) -> ImportSummary:
    """Merge batches of records with an account's findings, in the transaction of `bulk.open_bulk_import`.

    With `sends_events`, `finding.new` is sent for each new open finding. With `on_new`, the caller validates
    the new findings, and no job for it is queued.
    """
    lines = new = changed = unchanged = 0
    async with aclosing(batches):
        async for batch in batches:
            lines += len(batch)
            merged = await merge_with_stored(db, keys, account_id, batch, by=by, now=now)
            added = await bulk.upsert_batch(db, account_id, merged.records)
            new, changed = new + added, changed + len(merged.records) - added
            unchanged += merged.unchanged
            wrong = await scores.select_wrong_spread(db, account_id, merged.repeated)
            await scores.rescore(db, account_id, wrong, partial(score_stored, moment=now))
            await record_news(
                *(db, account_id, merged.new),
                by=by,
                now=now,
                sends_events=sends_events,
                is_validated_later=on_new is not None,
            )
            await make_due(db, account_id, merged.known)
            if on_new is not None:
                await on_new([record.finding.id for record in merged.new])
            if lines % _FLUSH_INDEX_EVERY < _BATCH_SIZE:
                await bulk.flush_search_index(db)
                await bulk.discard_plans(db)
            if lines % _COUNT_EVERY < _BATCH_SIZE:
                await bulk.count_new(db)
    return ImportSummary(lines, new, lines - new, changed, unchanged)


async def _read_ahead(batches: Iterator[list[ImportRecord]]) -> AsyncGenerator[list[ImportRecord]]:
    """Yield the batches; a thread parses the next one while the last one is written."""
    loop = asyncio.get_running_loop()
    upcoming = loop.run_in_executor(None, next, batches, None)
    try:
        while batch := await upcoming:
            upcoming = loop.run_in_executor(None, next, batches, None)
            yield batch
    finally:
        await asyncio.wait([upcoming])


def _split_batches(records: Iterator[ImportRecord]) -> Iterator[list[ImportRecord]]:
    """Yield the records in lists of _BATCH_SIZE."""
    while batch := list(islice(records, _BATCH_SIZE)):
        yield batch
