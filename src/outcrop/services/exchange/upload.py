"""Stage the report of an upload: check all its records, and store them encrypted until a job merges them.

1. A thread parses the body as it arrives and encrypts its records in batches (`_Stager.stage`). One thread of
   the process parses at a time.
2. Every batch but the last is stored in a short transaction of its own.
3. At the end the import is queued together with its job (`_queue`). Of an upload that fails nothing is left.
"""

import asyncio
import hashlib
import io
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID, uuid4

import orjson

from outcrop.domain.errors import BadInputError, BusyError, OutcropError
from outcrop.services.exchange.formats import FileRecord, ImportFormat, RecordError, read_records
from outcrop.services.exchange.import_records import RecordBuilder
from outcrop.services.exchange.upload_file import UploadFile
from outcrop.store import imports
from outcrop.store.db import Connection
from outcrop.store.imports import NewImport, StagedBatch
from outcrop.store.keyring import Keyring
from outcrop.store.runs import jobs

MERGE_TASK = "merge_import"  # the name is stored in queued jobs, so it does not change
MERGE_LOCK = "import "  # with an account's id: its imports are merged one after the other
_BATCH_RECORDS = 1_000
_BATCH_BYTES = 1 << 20
_READ_BYTES = 256 << 10

T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[Connection]]


class BadReportError(OutcropError):
    """The body is no report, or one of its records is invalid."""

    code = "bad_report"

    def __init__(self, record: int, message: str) -> None:
        super().__init__(message)
        self.record = record


class IdempotencyConflictError(OutcropError):
    code = "idempotency_conflict"

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another report or other parameters")


class Body(Protocol):
    """The body of a request, as it arrives."""

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end."""

    def close(self) -> None:
        """Make every further read fail."""


class UploadLanes:
    """The uploads of one process: at most `most` at once. One of them parses, a few use the database."""

    def __init__(self, most: int, writing: int = 2) -> None:
        self._most, self._running = most, 0
        self._executor = ThreadPoolExecutor(most, thread_name_prefix="upload")
        self._turn = threading.Lock()
        self._writing = asyncio.Semaphore(writing)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Count as an upload during the body; raise BusyError if there are too many."""
        if self._running >= self._most:
            raise BusyError("too many reports are being received; nothing was imported, try again")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def write(self, connect: Connect, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run database work of an upload in one transaction, a few of the process at once."""
        async with self._writing, connect() as db, db.transaction():
            return await work(db)

    async def run(self, work: Callable[[], T], body: Body) -> T:
        """Run work in a thread, while no other one of an upload runs; return when the thread has ended."""

        def in_turn() -> T:
            with self._turn:
                return work()

        future = asyncio.get_running_loop().run_in_executor(self._executor, in_turn)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            body.close()  # so that the thread ends
            await asyncio.wait([future])
            raise

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pass the turn to threads of other uploads during the body. Called in a thread of `run`."""
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def close(self) -> None:
        """Start no thread any more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class ReportUpload:
    """What the sender of a report says about it."""

    format: ImportFormat
    repo: str | None
    commit: str | None
    events: bool
    idempotency_key: str | None
    is_gzip: bool


@dataclass(frozen=True, slots=True)
class UploadContext:
    """Where uploads of an account are stored, and the limit of each."""

    lanes: UploadLanes
    connect: Connect
    keys: Keyring
    account_id: int
    by: str  # the actor in the audit trail
    now: datetime
    max_bytes: int  # decompressed


async def receive_report(context: UploadContext, upload: ReportUpload, body: Body) -> UUID:
    """Stage a report and queue the job that merges it; return the id of the import.

    A repeated request gets the id of the first one. Raise IdempotencyConflictError if its key was used for
    another request, BadReportError if a record is invalid, and the errors of `body` and UploadFile.
    """
    with context.lanes.enter():
        if (key := upload.idempotency_key) is not None:
            earlier = await context.lanes.write(
                context.connect, lambda db: imports.select_by_key(db, context.account_id, key)
            )
            if earlier is not None:
                file = _open_body(context, upload, body)
                digest = await context.lanes.run(lambda: _hash_rest(file, upload), body)
                return _match(earlier, digest)
        return await _stage_and_queue(context, upload, body)


async def _stage_and_queue(context: UploadContext, upload: ReportUpload, body: Body) -> UUID:
    """Stage a report and queue its import; return the id. If that fails, delete what was stored."""
    import_id = uuid4()
    lanes, account_id = context.lanes, context.account_id
    file = _open_body(context, upload, body)
    stager = _Stager(context, upload)
    has_stored = False

    async def store(batch: StagedBatch) -> None:
        """Store a batch, the first one with its import."""
        nonlocal has_stored

        async def insert(db: Connection) -> None:
            if batch.number == 0:
                await imports.insert_receiving(db, account_id, import_id, by=context.by)
            await imports.insert_batch(db, account_id, import_id, batch)

        has_stored = True
        await lanes.write(context.connect, insert)

    loop = asyncio.get_running_loop()

    def store_from_thread(batch: StagedBatch) -> None:
        with lanes.paused():
            asyncio.run_coroutine_threadsafe(store(batch), loop).result()

    try:
        staged = await lanes.run(lambda: stager.stage(file, store_from_thread), body)
        return await lanes.write(
            context.connect, lambda db: _queue(db, context, import_id, upload, staged, has_row=has_stored)
        )
    except BaseException:
        if has_stored:
            await lanes.write(context.connect, lambda db: imports.delete(db, account_id, import_id))
        raise


def _open_body(context: UploadContext, upload: ReportUpload, body: Body) -> UploadFile:
    """Return the body as a file that a thread of the lanes reads."""
    loop = asyncio.get_running_loop()

    def read() -> bytes:
        return asyncio.run_coroutine_threadsafe(body.read(), loop).result()

    return UploadFile(read, context.lanes.paused, is_gzip=upload.is_gzip, max_bytes=context.max_bytes)


@dataclass(frozen=True, slots=True)
class _StagedReport:
    """A report whose records are all valid."""

    format: ImportFormat
    records: int
    digest: bytes  # of the body and the parameters
    last_batch: StagedBatch | None  # not stored yet


class _Stager:
    """Checks and encrypts the records of one upload. Runs in a thread."""

    def __init__(self, context: UploadContext, upload: ReportUpload) -> None:
        self._context = context
        self._upload = upload
        self._records = 0
        self._batches = 0
        self._kept: list[FileRecord] = []
        self._kept_from = 0  # bytes read before the first record of the batch

    def stage(self, file: UploadFile, store: Callable[[StagedBatch], None]) -> _StagedReport:
        """Read and check all records; call `store` with each batch but the last. Raise BadReportError."""
        try:
            format_, records = read_records(io.BufferedReader(file, _READ_BYTES), self._upload.format)
            self._check_all(format_, records, store)
        except BadInputError as error:
            raise BadReportError(_record_number(error, self._records + 1), error.message) from None
        if self._upload.format is ImportFormat.AUTO and file.size == 0:
            raise BadReportError(1, "the body is empty")
        digest = _hash_rest(file, self._upload)
        return _StagedReport(format_, self._records, digest, self._seal() if self._kept else None)

    def _check_all(
        self, format_: ImportFormat, records: Iterable[FileRecord], store: Callable[[StagedBatch], None]
    ) -> None:
        """Build the row of every record, which raises if it is invalid, and keep the record itself."""
        context = self._context
        builder = RecordBuilder(
            context.keys,
            context.account_id,
            context.now,
            keep_secrets=False,
            format_=format_,
            restore=False,
            may_restore=False,
            repo=self._upload.repo,
            commit=self._upload.commit,
        )
        for _ in builder.build_all(self._keep(records), lambda _: None):
            self._records += 1
            is_large = self._kept[-1][2] - self._kept_from >= _BATCH_BYTES
            if is_large or len(self._kept) >= _BATCH_RECORDS:
                self._kept_from = self._kept[-1][2]
                store(self._seal())

    def _keep(self, records: Iterable[FileRecord]) -> Iterator[FileRecord]:
        """Yield the records, and keep them for the batch."""
        for record in records:
            self._kept.append(record)
            yield record

    def _seal(self) -> StagedBatch:
        """Return the kept records as an encrypted batch, and keep none."""
        plaintext = zlib.compress(orjson.dumps([[where, fields] for where, fields, _ in self._kept]), 1)
        id_, context = uuid4(), self._context
        batch = StagedBatch(id_, self._batches, context.keys.seal_bytes(plaintext, context.account_id, id_))
        self._batches += 1
        self._kept = []
        return batch


def open_batch(keys: Keyring, account_id: int, batch: StagedBatch) -> list[FileRecord]:
    """Return the records of a staged batch."""
    plaintext = zlib.decompress(keys.open_bytes(batch.box, account_id, batch.id))
    return [(where, fields, 0) for where, fields in orjson.loads(plaintext)]


def _hash_rest(file: UploadFile, upload: ReportUpload) -> bytes:
    """Read a body to its end; return a hash of all of it and of the parameters."""
    while file.read(_READ_BYTES):
        pass
    parameters = orjson.dumps([upload.format, upload.repo, upload.commit, upload.events])
    return hashlib.sha256(parameters + file.digest.digest()).digest()


def _record_number(error: BadInputError, next_record: int) -> int:
    """Return the number of the record that an error is about; by default that of the next record."""
    return error.number if isinstance(error, RecordError) else next_record


async def _queue(
    db: Connection,
    context: UploadContext,
    import_id: UUID,
    upload: ReportUpload,
    staged: _StagedReport,
    *,
    has_row: bool,
) -> UUID:
    """Queue the import of a staged report with its job; return the id.

    If another request with the same idempotency key was faster, return the id of its import instead.
    """
    account_id, key = context.account_id, upload.idempotency_key
    if not has_row:
        await imports.insert_receiving(db, account_id, import_id, by=context.by)
    if staged.last_batch is not None:
        await imports.insert_batch(db, account_id, import_id, staged.last_batch)
    new = NewImport(staged.format, upload.repo, upload.commit, upload.events, staged.records, staged.digest)
    earlier = await imports.queue(db, account_id, import_id, new, idempotency_key=key)
    if earlier is not None:
        await imports.delete(db, account_id, import_id)
        return _match(earlier, staged.digest)
    await enqueue_merge(db, account_id, import_id)
    return import_id


def _match(earlier: tuple[UUID, bytes], digest: bytes) -> UUID:
    """Return the id of an earlier import if its request was the same; raise IdempotencyConflictError."""
    if earlier[1] != digest:
        raise IdempotencyConflictError
    return earlier[0]


async def enqueue_merge(db: Connection, account_id: int, import_id: UUID) -> None:
    """Write the job that merges an import. The imports of an account are merged one after the other."""
    arguments = {"account_id": account_id, "import_id": str(import_id)}
    await jobs.defer_jobs(db, MERGE_TASK, [(f"{MERGE_LOCK}{account_id}", arguments)], jobs.IMPORTED)
