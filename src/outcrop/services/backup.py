"""Write a backup of the whole database to one file, and restore it.

A restored database sends no event that may have been sent after the backup was made.
"""

import asyncio
import hmac
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import BinaryIO

from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.domain.secret import KeepSecrets
from outcrop.store import audit, imports, operator_key, outbox, schema, secret_policy
from outcrop.store.backup import tables as backup_tables
from outcrop.store.backup.archive import ArchiveHeader, ArchiveReader, ArchiveWriter
from outcrop.store.db import Connection
from outcrop.store.operator_key import OperatorKey, WrappedKeys
from outcrop.store.runs import scans

_MAYBE_SENT = "restored from a backup: it may have been sent since"
_RUN_INTERRUPTED = "it was still running when the backup was made"
_IMPORT_INTERRUPTED = "the database was restored before the import was merged: send the report again"
BackupProgress = Callable[[int], None]  # gets the bytes written or read so far


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """The schema version, size in bytes and row counts of a written backup."""

    schema: int
    size: int
    rows: dict[str, int]  # by table


async def write_backup(
    db: Connection,
    operator: OperatorKey,
    file: BinaryIO,
    *,
    version: str,
    now: datetime,
    progress: BackupProgress,
) -> BackupSummary:
    """Write a consistent snapshot of the database to a file. `version` is the program's, for the header."""
    async with backup_tables.read_snapshot(db) as contents:
        if (wrapped := await operator_key.select_wrapped_keys(db)) is None:
            raise OperatorError("there is nothing to back up: the database has no account yet")
        keys = operator_key.unwrap_backup_keys(wrapped, operator, "this database")
        if keys.previous_data_key is not None:
            raise OperatorError(
                "the data key is being replaced: first finish `outcrop secrets rotate --data-key`"
            )
        ring = {name: value.hex() for name, value in asdict(wrapped).items() if value is not None}
        header = ArchiveHeader(
            now, version, contents.schema, ring, contents.sequences, await _select_keep_secrets(db, contents)
        )
        writer = ArchiveWriter(file, header)
        rows = {}
        for table in contents.tables:
            writer.begin_table(table.name, table.columns)

            def write_piece(piece: bytes | bytearray | memoryview) -> None:
                """Write rows to the archive and report the progress."""
                writer.add_rows(piece)
                progress(writer.size)

            rows[table.name] = await backup_tables.copy_table_out(db, table, write_piece)
            writer.end_table(rows[table.name])
    writer.finish(keys.compute_backup_mac)
    return BackupSummary(contents.schema, writer.size, rows)


@dataclass(frozen=True, slots=True)
class VerifiedBackup:
    """The header, keys and digest of a backup that is complete and authentic."""

    header: ArchiveHeader
    keyring: WrappedKeys
    digest: bytes


async def verify_backup(
    file: BinaryIO, name: str, operator: OperatorKey, *, progress: BackupProgress
) -> VerifiedBackup:
    """Read a backup to its end and check it; raise if it is incomplete, altered, too new or has another key.

    `name` is the file's name in error messages.
    """
    archive = ArchiveReader(file, name)
    if archive.header.schema > schema.newest_version():
        raise BadInputError(f"{name} was written by a newer version of Outcrop: upgrade this one")
    for table in archive.tables():
        for _ in table.pieces:
            progress(archive.bytes_read)
            await asyncio.sleep(0)  # lets the command be interrupted
    try:
        wrapped = WrappedKeys(**{key: bytes.fromhex(value) for key, value in archive.header.keyring.items()})
    except (TypeError, ValueError):
        raise BadInputError(f"{name} has no keys that this version of Outcrop can read") from None
    keys = operator_key.unwrap_backup_keys(wrapped, operator, "this backup")
    if not hmac.compare_digest(keys.compute_backup_mac(archive.digest), archive.mac):
        raise _altered(name)
    return VerifiedBackup(archive.header, wrapped, archive.digest)


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    """The effects of a restore."""

    rows: dict[str, int]  # by table
    migrated: list[str]  # names of the applied migrations
    deliveries: int  # ended as unknown, because they may have been sent
    runs: int  # ended as failed


async def restore_backup(
    db: Connection,
    file: BinaryIO,
    name: str,
    verified: VerifiedBackup,
    *,
    by: str,
    now: datetime,
    progress: BackupProgress,
) -> RestoreSummary:
    """Fill an empty database from a verified backup and migrate it, in the caller's transaction.

    Runs that were unfinished end as failed, and open deliveries as unknown.
    """
    archive = ArchiveReader(file, name)
    async with backup_tables.create_bare_tables(db, verified.header.schema) as tables:
        rows = await _fill_tables(db, archive, tables, progress)
        if rows is None:
            raise BadInputError(
                f"{name} does not have the tables of schema {verified.header.schema}: nothing was restored"
            )
        if archive.digest != verified.digest:
            raise _altered(name)
    await backup_tables.set_sequences(db, verified.header.sequences)
    await operator_key.upsert_wrapped_keys(db, verified.keyring)
    migrated = await schema.migrate(db)
    if verified.header.keep_secrets is not None:
        await secret_policy.save(db, verified.header.keep_secrets)
    deliveries = await outbox.end_open_deliveries(db, reason=_MAYBE_SENT, now=now)
    runs = await _end_runs(db, now=now)
    await imports.fail_unfinished(db, _IMPORT_INTERRUPTED)
    header = verified.header
    detail = {
        "made_at": header.made_at.isoformat(),
        "made_by": header.made_by,
        "deliveries_unknown": deliveries,
        "runs_ended": runs,
    }
    await audit.append_to_every_account(db, audit.AuditLine(now, by, "database.restore", detail=detail))
    return RestoreSummary(rows, migrated, deliveries, runs)


async def _fill_tables(
    db: Connection,
    archive: ArchiveReader,
    tables: dict[str, backup_tables.TableColumns],
    progress: BackupProgress,
) -> dict[str, int] | None:
    """Copy all tables from the archive; return their row counts.

    Return None if the archive has other tables or columns, or a table has another number of rows than stated.
    """

    def report_progress(pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces; before each, report how much of the archive was read."""
        for piece in pieces:
            progress(archive.bytes_read)
            yield piece

    rows: dict[str, int] = {}
    for stored in archive.tables():
        table = tables.get(stored.name)
        if table is None or stored.name in rows or stored.columns != table.columns:
            return None
        rows[stored.name] = await backup_tables.copy_table_in(db, table, report_progress(stored.pieces))
        if rows[stored.name] != stored.rows:
            return None
    return rows if rows.keys() == tables.keys() else None


async def _end_runs(db: Connection, *, now: datetime) -> int:
    """End unfinished runs as failed, because their jobs are not in the backup; return how many."""
    ended = 0
    for account_id, scan_id in await scans.select_unfinished(db):
        if (
            end := await scans.finish_run(db, account_id, scan_id, now=now, error=_RUN_INTERRUPTED)
        ) is not None:
            detail = {"new": end.new, "seen": end.seen, "resolved": end.resolved, "error": _RUN_INTERRUPTED}
            await audit.append(
                db, account_id, audit.AuditLine(now, "scan", "scan.finish", str(scan_id), "failed", detail)
            )
            ended += 1
    return ended


def _altered(name: str) -> BadInputError:
    """Return the error for a backup whose content is not what was verified or written."""
    return BadInputError(f"{name} was altered: nothing was restored")


async def _select_keep_secrets(
    db: Connection, contents: backup_tables.DatabaseContents
) -> KeepSecrets | None:
    """Return which credentials the database keeps; None in a schema that has no such setting."""
    return await secret_policy.select(db) if contents.schema >= schema.RECORDS_SETTINGS else None
