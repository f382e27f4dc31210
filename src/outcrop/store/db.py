"""Connections: one kind of connection for the whole house, the pool, and a snapshot to read several things from."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

import orjson
import psycopg
from psycopg import IsolationLevel
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outcrop.domain.errors import BusyError, OperatorError

set_json_loads(orjson.loads)
set_json_dumps(orjson.dumps)

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
Pool: TypeAlias = AsyncConnectionPool[Connection]
# What a caller sees when the database cannot be reached, or goes away in the middle.
UNAVAILABLE = (psycopg.OperationalError, PoolTimeout)
T = TypeVar("T")
_LONGEST_LOCK = 1.0  # seconds: who asks has a connection that others wait for
_LONGEST_WAIT = 10.0  # seconds for a connection, however long a statement may take


async def connect(dsn: str) -> Connection:
    """Open one connection in autocommit mode; UTC whatever the server's own zone is."""
    try:
        db = await psycopg.AsyncConnection.connect(dsn, autocommit=True, connect_timeout=5, **_SESSION)
    except psycopg.Error as error:
        raise OperatorError(f"cannot reach the database: {_first_line(error)}") from None
    return db


@asynccontextmanager
async def open_pool(dsn: str, *, size: int, statement_timeout: float) -> AsyncIterator[Pool]:
    """Open a pool for a server: whoever waits for a connection or a statement too long gets an error instead."""
    options = f"{_SESSION['options']} -c statement_timeout={int(statement_timeout * 1000)}"
    pool: Pool = AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        timeout=min(statement_timeout, _LONGEST_WAIT),
        reconnect_timeout=0,  # while the database is away, only a request that waits makes the pool try again
        kwargs={"autocommit": True, "connect_timeout": 3} | _SESSION | {"options": options},
        open=False,
    )
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close(timeout=2)


@asynccontextmanager
async def acquire_connection(
    pool: Pool, enter: Callable[[Connection], Awaitable[T]]
) -> AsyncIterator[tuple[Connection, T]]:
    """Take a connection on which a first statement has succeeded. The pool may hold connections that died while it was quiet."""
    for spare in reversed(range(pool.max_size + 1)):
        async with pool.connection() as db:
            try:
                first = await enter(db)
            except UNAVAILABLE:
                if db.broken and spare:
                    continue
                raise
            yield db, first
            return


@asynccontextmanager
async def snapshot(db: Connection) -> AsyncIterator[None]:
    """Let every read inside see the same moment."""
    await db.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await db.set_read_only(True)
    try:
        async with db.transaction():
            yield
    finally:
        if not db.closed:
            await db.set_isolation_level(None)
            await db.set_read_only(None)


@asynccontextmanager
async def limit_lock_wait(db: Connection) -> AsyncIterator[None]:
    """Do something for a person in their transaction; where another holds a row for long they are told so, and the transaction is void."""
    await db.execute(f"SET LOCAL lock_timeout = {int(_LONGEST_LOCK * 1000)}".encode())
    try:
        yield
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        raise BusyError from None


@contextmanager
def convert_database_errors(what: str, hint: Callable[[], str] = str) -> Iterator[None]:
    """Tell an operator in one line what the database has against it. What quotes a value is told by its kind alone."""
    try:
        yield
    except psycopg.Error as error:
        why = (
            type(error).__name__
            if isinstance(error, psycopg.DataError)
            else error.diag.message_primary or _first_line(error)
        )
        raise OperatorError(f"{what}: {why}{hint()}") from None


async def describe_server(db: Connection) -> str:
    """Name the server and its version."""
    (version,) = await fetch_single_row(db, "SELECT 'PostgreSQL ' || current_setting('server_version')")
    return str(version)


async def fetch_single_row(db: Connection, sql: str) -> tuple[Any, ...]:
    """Give the one row of a query that has one."""
    row = await (await db.execute(sql.encode())).fetchone()
    assert row is not None  # noqa: S101 - a query without FROM has one row
    return row


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# A list statement is planned with its values: they decide which index is right. Parallel scans serve the one case no index does.
_SESSION: dict[str, Any] = {"options": "-c timezone=UTC -c jit=off", "application_name": "outcrop"}
