"""Open connections and pools, read from one snapshot, and convert database errors to Outcrop's own."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import orjson
import psycopg
from psycopg import IsolationLevel
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outcrop.domain.errors import BusyError, DatabaseUnavailableError, OperatorError

set_json_loads(orjson.loads)
set_json_dumps(orjson.dumps)

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
Pool: TypeAlias = AsyncConnectionPool[Connection]
Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]  # opens a connection for one batch
# Raised when the database cannot be reached or the connection is lost.
UNAVAILABLE = (
    psycopg.OperationalError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
    DatabaseUnavailableError,
)
T = TypeVar("T")
# Seconds after which the server ends a session that is idle in a transaction. Until then a frozen process
# keeps its locks. Commands have long transactions on purpose: a backup, an import from a pipe, a restore.
WORKER_IDLE_TIMEOUT = 60.0
COMMAND_IDLE_TIMEOUT = 3_600.0
_MAX_LOCK_WAIT = 1.0  # seconds; the request holds a pool connection that other requests wait for
_MAX_CONNECTION_WAIT = (
    10.0  # seconds a request waits for a pool connection, even if statements may take longer
)

# Parallel query stays on: it helps the few lists that no index serves. Statements of lists are run with
# `prepare=False`, since their values decide which index is right.
_SESSION: dict[str, Any] = {"options": "-c timezone=UTC -c jit=off", "application_name": "outcrop"}


async def connect(
    dsn: str, *, idle_timeout: float = COMMAND_IDLE_TIMEOUT, statement_timeout: float | None = None
) -> Connection:
    """Open one connection in autocommit mode, with the session's time zone set to UTC.

    The server ends the session after `idle_timeout` idle seconds in a transaction. With `statement_timeout`,
    a statement fails after that many seconds. Raise
    DatabaseUnavailableError if the database cannot be reached, OperatorError if `dsn` is malformed.
    """
    session: dict[str, Any] = {
        "options": session_options(idle_timeout=idle_timeout, statement_timeout=statement_timeout),
        "application_name": "outcrop command",
    }
    try:
        db = await psycopg.AsyncConnection.connect(dsn, autocommit=True, connect_timeout=5, **session)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailableError(f"cannot reach the database: {_first_line(error)}") from None
    except psycopg.Error as error:
        raise OperatorError(f"cannot reach the database: {_first_line(error)}") from None
    return db


def session_options(*, idle_timeout: float, statement_timeout: float | None = None) -> str:
    """Return the connection option `options`: the settings of every session, and these timeouts in seconds.

    `idle_timeout` is the time that a session may be idle in a transaction.
    """
    options = f"{_SESSION['options']} -c idle_in_transaction_session_timeout={int(idle_timeout * 1000)}"
    if statement_timeout is not None:
        options += f" -c statement_timeout={int(statement_timeout * 1000)}"
    return options


async def count_other_clients(db: Connection) -> int:
    """Return the number of other connections to the same database."""
    (count,) = await fetch_single_row(
        db,
        """SELECT count(*) FROM pg_stat_activity
           WHERE datname = current_database() AND backend_type = 'client backend'
             AND pid <> pg_backend_pid()""",
    )
    return int(count)


@asynccontextmanager
async def open_pool(
    dsn: str, *, size: int, statement_timeout: float, idle_timeout: float = WORKER_IDLE_TIMEOUT
) -> AsyncIterator[Pool]:
    """Open a pool of at most `size` autocommit connections, and close it at the end.

    A statement fails after `statement_timeout` seconds. Waiting for a connection fails after the same time,
    but after at most _MAX_CONNECTION_WAIT seconds. The server ends a session after `idle_timeout` idle
    seconds in a transaction.
    """
    options = session_options(idle_timeout=idle_timeout, statement_timeout=statement_timeout)
    pool: Pool = AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        timeout=min(statement_timeout, _MAX_CONNECTION_WAIT),
        reconnect_timeout=0,  # while the database is down, only a waiting request makes the pool reconnect
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
    pool: Pool, first_statement: Callable[[Connection], Awaitable[T]]
) -> AsyncIterator[tuple[Connection, T]]:
    """Yield a pool connection on which `first_statement` succeeded, and its result.

    The pool may hold connections that were lost while idle. On each of those `first_statement` fails, and the
    next connection is tried.
    """
    for retries_left in reversed(range(pool.max_size + 1)):
        async with pool.connection() as db:
            try:
                result = await first_statement(db)
            except UNAVAILABLE:
                if db.broken and retries_left:
                    continue
                raise
            yield db, result
            return


@asynccontextmanager
async def snapshot(db: Connection) -> AsyncIterator[None]:
    """Run the block in a read-only REPEATABLE READ transaction: all its queries see the same snapshot."""
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
    """Raise BusyError if the block waits more than _MAX_LOCK_WAIT seconds for a row lock, or deadlocks.

    The caller's transaction is then aborted. A person waits for the response, so a long wait is not
    acceptable.
    """
    await db.execute(f"SET LOCAL lock_timeout = {int(_MAX_LOCK_WAIT * 1000)}".encode())
    try:
        yield
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        raise BusyError from None


@contextmanager
def convert_database_errors(prefix: str, hint: Callable[[], str] = str) -> Iterator[None]:
    """Turn a database error in the block into a one-line OperatorError: `prefix`, the reason, and `hint()`.

    A DataError quotes the value that it refuses, which may be secret: only the name of its class is shown.
    """
    try:
        yield
    except psycopg.Error as error:
        reason = (
            type(error).__name__
            if isinstance(error, psycopg.DataError)
            else error.diag.message_primary or _first_line(error)
        )
        raise OperatorError(f"{prefix}: {reason}{hint()}") from None


def find_unavailability(error: BaseException) -> Exception | None:
    """Return the first error behind `error` that says that the database is unavailable, or None.

    What fails on a lost connection afterwards, such as the end of its transaction, may hide that error.
    """
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    hidden = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for other in (hidden, *members):
        if other is not None and (found := find_unavailability(other)) is not None:
            return found
    return error if isinstance(error, UNAVAILABLE) else None


def describe_unavailability(error: Exception) -> str:
    """Return one line that says why the database is unavailable, without any value of a statement."""
    if isinstance(error, DatabaseUnavailableError):
        return error.message
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return f"the database is unavailable: {primary or _first_line(error)}"


async def describe_server(db: Connection) -> str:
    """Return the server's name and version, such as "PostgreSQL 17.2"."""
    (version,) = await fetch_single_row(db, "SELECT 'PostgreSQL ' || current_setting('server_version')")
    return str(version)


async def end_stuck_sessions(db: Connection, *, after: float) -> int:
    """End sessions of pools whose client has not continued a statement for `after` seconds; return how many.

    Such a client is frozen. The server limits the time of a session that is idle in a transaction, but not
    the time that it waits in the middle of a COPY or of a large result.
    """
    (ended,) = await fetch_single_row(
        db,
        """SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
           WHERE datname = current_database() AND usename = current_user AND application_name = 'outcrop'
             AND state = 'active' AND wait_event IN ('ClientRead', 'ClientWrite')
             AND state_change < clock_timestamp() - make_interval(secs => %s)""",
        [after],
    )
    return int(ended)


async def fetch_single_row(db: Connection, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Run a query that always has exactly one row, and return that row. `values` are its parameters."""
    row = await (await db.execute(sql.encode(), values or None)).fetchone()
    assert row is not None  # noqa: S101 - a query without FROM, or an aggregate, has one row
    return row


async def current_time(db: Connection) -> datetime:
    """Return the time of the database's clock in UTC, without microseconds.

    Stored decisions use this time, because the clocks of workers and of the service may be wrong.
    """
    (moment,) = await fetch_single_row(db, "SELECT date_trunc('second', clock_timestamp())")
    assert isinstance(moment, datetime)  # noqa: S101 - for mypy
    return moment


def _first_line(error: Exception) -> str:
    """Return the first line of the error's text, or the name of its class if it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
