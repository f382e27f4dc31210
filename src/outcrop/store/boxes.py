"""Go through all encrypted values of the database: find damaged ones, or encrypt them with a new key."""

from dataclasses import dataclass
from uuid import UUID

from psycopg import sql

from outcrop.store.db import Connection
from outcrop.store.keyring import EXCERPT_PURPOSE, URL_PURPOSE, DamagedValueError, Keyring

_BATCH_SIZE = 1000  # values that one transaction encrypts
_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class BoxColumn:
    """A column of encrypted values. `owner` is the column with the id that they are bound to."""

    table: str
    column: str
    owner: str = "id"
    purpose: bytes = b""
    prefix: bytes = b""  # only values that begin with it are encrypted; the rest of them is

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column}"


BOX_COLUMNS = (
    BoxColumn("findings", "secret_box"),
    BoxColumn("findings", "excerpt_box", purpose=EXCERPT_PURPOSE),
    BoxColumn("findings", "source_path", prefix=b"\1"),
    BoxColumn("import_batches", "box"),
    BoxColumn("targets", "credential_box"),
    BoxColumn("targets", "url_box", purpose=URL_PURPOSE),
    BoxColumn("scans", "url_box", purpose=URL_PURPOSE),
    BoxColumn("webhooks", "url_box", purpose=URL_PURPOSE),
    BoxColumn("webhooks", "secret_box"),
    BoxColumn("webhooks", "next_box"),
    BoxColumn("webhooks", "old_box"),
    BoxColumn("hooks", "secret_box"),
    BoxColumn("pushes", "box"),
    BoxColumn("second_factors", "box", owner="member_id"),
)


@dataclass(frozen=True, slots=True)
class BoxCounts:
    """How many values of a column were read, how many are damaged, and the owner of one of these."""

    column: BoxColumn
    total: int
    damaged: int
    example: UUID | None


async def count_damaged(db: Connection, keys: Keyring) -> list[BoxCounts]:
    """Decrypt all encrypted values, and count the damaged ones of each column."""
    return [await _walk(db, keys, column, write=False) for column in BOX_COLUMNS]


async def reencrypt_all(db: Connection, keys: Keyring) -> list[BoxCounts]:
    """Encrypt all values with the newest data key, in many transactions. Damaged values stay as they are.

    Values that have it already are skipped, so that a second call continues where an interrupted one ended.
    """
    return [await _walk(db, keys, column, write=True) for column in BOX_COLUMNS]


async def _walk(db: Connection, keys: Keyring, column: BoxColumn, *, write: bool) -> BoxCounts:
    """Decrypt the values of a column, batch by batch; with `write`, encrypt them with the newest data key."""
    total, damaged = 0, list[UUID]()
    last: tuple[int, UUID] = (0, _NO_ID)
    while True:
        async with db.transaction():
            if not (batch := await _select_batch(db, column, last, lock=write)):
                break
            changed = []
            for account_id, owner_id, value in batch:
                try:
                    box = keys.reencrypt(value[len(column.prefix) :], account_id, owner_id, column.purpose)
                except DamagedValueError:
                    damaged.append(owner_id)
                else:
                    if box is not None:
                        changed.append((account_id, owner_id, column.prefix + box))
            if write and changed:
                await _write(db, column, changed)
        total += len(batch)
        last = batch[-1][0], batch[-1][1]
    return BoxCounts(column, total, len(damaged), min(damaged, default=None))


_Row = tuple[int, UUID, bytes]


async def _select_batch(
    db: Connection, column: BoxColumn, last: tuple[int, UUID], *, lock: bool
) -> list[_Row]:
    """Return (account id, owner id, value) of the next encrypted values of a column after the key `last`.

    With `lock`, their rows are locked until the transaction ends.
    """
    statement = sql.SQL(
        """SELECT account_id, {owner}, {column} FROM {table}
           WHERE (account_id, {owner}) > (%s, %s) AND {column} IS NOT NULL
             AND substr({column}, 1, %s) = %s
           ORDER BY account_id, {owner} LIMIT %s {lock}"""
    ).format(
        owner=sql.Identifier(column.owner),
        column=sql.Identifier(column.column),
        table=sql.Identifier(column.table),
        lock=sql.SQL("FOR NO KEY UPDATE" if lock else ""),
    )
    cursor = await db.execute(statement, [*last, len(column.prefix), column.prefix, _BATCH_SIZE])
    return await cursor.fetchall()


async def _write(db: Connection, column: BoxColumn, rows: list[_Row]) -> None:
    """Replace encrypted values."""
    statement = sql.SQL(
        """UPDATE {table} t SET {column} = new.box
           FROM unnest(%s::int[], %s::uuid[], %s::bytea[]) AS new (account_id, id, box)
           WHERE t.account_id = new.account_id AND t.{owner} = new.id"""
    ).format(
        owner=sql.Identifier(column.owner),
        column=sql.Identifier(column.column),
        table=sql.Identifier(column.table),
    )
    await db.execute(statement, [list(values) for values in zip(*rows, strict=True)])
