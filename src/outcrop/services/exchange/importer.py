"""Import findings from a file into an account, in one transaction and in bounded memory.

1. A thread parses the records of the file and encrypts their credentials (`import_records`).
2. Batches are merged with the stored findings (`merge`) and written.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import BinaryIO

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.services.exchange.formats import ImportFormat, read_records
from outcrop.services.exchange.import_records import ImportRecord, RecordBuilder
from outcrop.services.exchange.merge import merge_with_stored
from outcrop.sources.repository_address import normalise_repository
from outcrop.store import audit, secret_policy
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, scores
from outcrop.store.keyring import Keyring

_BATCH_SIZE = 5_000  # findings that are written with one statement
_FLUSH_INDEX_EVERY = 40_000  # findings; the pending list of the search index then has about 64 MB


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The numbers of imported, new and updated findings."""

    lines: int
    new: int
    updated: int
    unplaced: int = field(default=0, compare=False)  # records whose source is the report itself


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
) -> ImportSummary:
    """Import all findings of a file, or none if one is invalid.

    A record either restores a finding, which replaces all its fields, or is a scanner's report
    (`ImportRecord.restores`). With `restore`, every record restores. `progress` gets the number of bytes read
    so far. `columns` are the columns of CSV by field. `repo` and `commit` are those of records that
    name none. Raise BadInputError if `repo` is no address, or the file is not a report.
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
    )
    batches = _split_batches(builder.build_all(file_records, progress))
    lines = new = 0
    async with bulk.open_bulk_import(db):
        loop = asyncio.get_running_loop()
        batch = await loop.run_in_executor(None, next, batches, None)
        while batch:
            next_batch = loop.run_in_executor(None, next, batches, None)  # parsed while this one is written
            try:
                lines += len(batch)
                merged = await merge_with_stored(db, keys, account.id, batch, by=by, now=now)
                new += await bulk.upsert_batch(db, account.id, merged.records)
                wrong = await scores.select_wrong_spread(db, account.id, merged.repeated)
                await scores.rescore(db, account.id, wrong, partial(score_stored, moment=now))
                if lines % _FLUSH_INDEX_EVERY < _BATCH_SIZE:
                    await bulk.flush_search_index(db)
                    await bulk.discard_plans(db)
            finally:
                await asyncio.wait([next_batch])
            batch = next_batch.result()
        # The audit line has the counts, so it is written last, in the same transaction.
        detail = {"lines": lines, "new": new, "updated": lines - new}
        line = audit.AuditLine(now, by, "findings.import", account.slug, detail=detail)
        await audit.append(db, account.id, line)
    return ImportSummary(lines, new, lines - new, builder.unplaced)


def _split_batches(records: Iterator[ImportRecord]) -> Iterator[list[ImportRecord]]:
    """Yield the records in lists of _BATCH_SIZE."""
    while batch := list(islice(records, _BATCH_SIZE)):
        yield batch
