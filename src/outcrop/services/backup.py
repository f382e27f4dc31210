"""A backup of everything in one file, and a database made from it, in which nothing is sent that may have been sent since."""

import asyncio
import hmac
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import BinaryIO

from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.store import audit, keyring, outbox, schema
from outcrop.store.backup import tables as backup_tables
from outcrop.store.backup.archive import ArchiveHeader, ArchiveReader, ArchiveWriter
from outcrop.store.db import Connection
from outcrop.store.keyring import OperatorKey, WrappedKeys
from outcrop.store.runs import scans

_MAY_BE_SENT = "restored from a backup: it may have been sent since"
_CUT_OFF = "it had not ended when the backup was made"
Progress = Callable[[int], None]  # is told the bytes of the file so far


@dataclass(frozen=True, slots=True)
class BackupSummary:
    schema: int
    size: int
    rows: dict[str, int]  # by table


async def write_backup(
    db: Connection, operator: OperatorKey, file: BinaryIO, *, version: str, now: datetime, progress: Progress
) -> BackupSummary:
    """Write everything as it is at this moment; the database is only read."""
    async with backup_tables.read_snapshot(db) as contents:
        if (wrapped := await keyring.select_wrapped_keys(db)) is None:
            raise OperatorError("there is nothing to back up: the database has no account yet")
        keys = keyring.unwrap_backup_keys(wrapped, operator, "this database")
        ring = {name: value.hex() for name, value in asdict(wrapped).items()}
        writer = ArchiveWriter(file, ArchiveHeader(now, version, contents.schema, ring, contents.sequences))
        rows = {}
        for table in contents.tables:
            writer.begin_table(table.name, table.columns)

            def take(piece: bytes | bytearray | memoryview) -> None:
                writer.add_rows(piece)
                progress(writer.size)

            rows[table.name] = await backup_tables.copy_table_out(db, table, take)
            writer.end_table(rows[table.name])
    writer.finish(keys.compute_backup_mac)
    return BackupSummary(contents.schema, writer.size, rows)


@dataclass(frozen=True, slots=True)
class VerifiedBackup:
    """What a file is, that was read to its end and found whole."""

    header: ArchiveHeader
    keyring: WrappedKeys
    digest: bytes


async def verify_backup(
    file: BinaryIO, name: str, operator: OperatorKey, *, progress: Progress
) -> VerifiedBackup:
    """Refuse a file unless it is a whole backup, of no newer schema, and this key opens its keys."""
    archive = ArchiveReader(file, name)
    if archive.header.schema > schema.newest_version():
        raise BadInputError(f"{name} was written by a newer version of Outcrop: upgrade this one")
    for table in archive.tables():
        for _ in table.pieces:
            progress(archive.bytes_read)
            await asyncio.sleep(0)  # so that it can be told to stop
    try:
        wrapped = WrappedKeys(**{key: bytes.fromhex(value) for key, value in archive.header.keyring.items()})
    except (TypeError, ValueError):
        raise BadInputError(f"{name} has no keys that this version of Outcrop knows") from None
    keys = keyring.unwrap_backup_keys(wrapped, operator, "this backup")
    if not hmac.compare_digest(keys.compute_backup_mac(archive.digest), archive.mac):
        raise _altered(name)
    return VerifiedBackup(archive.header, wrapped, archive.digest)


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    rows: dict[str, int]  # by table
    migrated: list[str]
    deliveries: int  # that are not sent, as they may have been
    runs: int  # that were ended


async def restore_backup(
    db: Connection,
    file: BinaryIO,
    name: str,
    checked: VerifiedBackup,
    *,
    by: str,
    now: datetime,
    progress: Progress,
) -> RestoreSummary:
    """Fill an empty database from a backup that was checked, in the caller's transaction."""
    archive = ArchiveReader(file, name)
    async with backup_tables.create_bare_tables(db, checked.header.schema) as tables:
        rows = await _fill(db, archive, tables, progress)
        if rows is None:
            raise BadInputError(
                f"{name} does not hold the tables of schema {checked.header.schema}: nothing is restored from it"
            )
        if archive.digest != checked.digest:
            raise _altered(name)
    await backup_tables.set_sequences(db, checked.header.sequences)
    await keyring.upsert_wrapped_keys(db, checked.keyring)
    migrated = await schema.migrate(db)
    deliveries = await outbox.end_open_deliveries(db, reason=_MAY_BE_SENT, now=now)
    runs = await _end_runs(db, now=now)
    header = checked.header
    detail = {
        "made_at": header.made_at.isoformat(),
        "made_by": header.made_by,
        "deliveries_unknown": deliveries,
        "runs_ended": runs,
    }
    await audit.append_to_every_account(db, audit.AuditLine(now, by, "database.restore", detail=detail))
    return RestoreSummary(rows, migrated, deliveries, runs)


async def _fill(
    db: Connection, archive: ArchiveReader, tables: dict[str, backup_tables.TableColumns], progress: Progress
) -> dict[str, int] | None:
    """Fill every table, each once and with all of its columns; None where the file holds others, or not as many rows as it says."""

    def told(pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            progress(archive.bytes_read)
            yield piece

    rows: dict[str, int] = {}
    for stored in archive.tables():
        table = tables.get(stored.name)
        if table is None or stored.name in rows or stored.columns != table.columns:
            return None
        rows[stored.name] = await backup_tables.copy_table_in(db, table, told(stored.pieces))
        if rows[stored.name] != stored.rows:
            return None
    return rows if rows.keys() == tables.keys() else None


async def _end_runs(db: Connection, *, now: datetime) -> int:
    """End the runs that had not ended: their jobs are not in the backup. Schedules start new ones."""
    ended = 0
    for account_id, scan_id in await scans.select_unfinished(db):
        if (end := await scans.finish_run(db, account_id, scan_id, now=now, error=_CUT_OFF)) is not None:
            detail = {"new": end.new, "seen": end.seen, "resolved": end.resolved, "error": _CUT_OFF}
            await audit.append(
                db, account_id, audit.AuditLine(now, "scan", "scan.finish", str(scan_id), "failed", detail)
            )
            ended += 1
    return ended


def _altered(name: str) -> BadInputError:
    return BadInputError(f"{name} was altered: nothing is restored from it")
