"""Keep idle database connections for the next call, also of the next test.

On a new connection the server compiles the triggers again, which takes longer than most tests' statements.
"""

import asyncio
import atexit
import select
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus

from outcrop.store import db as database
from outcrop.store.db import Connection

T = TypeVar("T")
_idle: defaultdict[str, list[psycopg.Connection[Any]]] = defaultdict(list)  # by connection string
_idle_async: defaultdict[str, list[Connection]] = defaultdict(list)


@contextmanager
def borrow_connection(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Yield an autocommit connection, and keep it afterwards."""
    db = _take(_idle[url]) or psycopg.connect(url, autocommit=True)
    try:
        yield db
    finally:
        _keep(_idle[url], db)


def run_on_connection(url: str, work: Callable[[Connection], Awaitable[T]], *, transaction: bool) -> T:
    """Run a function of a service or the store on a connection, in a transaction if `transaction`."""

    async def main() -> T:
        db = _take(_idle_async[url]) or await database.connect(url)
        try:
            if not transaction:
                return await work(db)
            async with db.transaction():
                return await work(db)
        finally:
            _keep(_idle_async[url], db)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as thread:  # tests with a browser have a running loop
        return thread.submit(lambda: asyncio.run(main())).result()


def query(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement in autocommit mode; return its rows."""
    with borrow_connection(url) as db:
        cursor = db.execute(statement.encode(), values)
        if cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK:
            return cursor.fetchall()
        return []


C = TypeVar("C", psycopg.Connection[Any], Connection)


def _take(idle: list[C]) -> C | None:
    """Return an idle connection that the server has not closed; None if there is none.

    An idle connection has something to read only if the server has closed it.
    """
    while idle:
        db = idle.pop()
        if not select.select([db.fileno()], [], [], 0)[0]:
            return db
        db.pgconn.finish()
    return None


def _keep(idle: list[C], db: C) -> None:
    """Keep a connection for the next call if it is open and has no transaction; close it otherwise."""
    if not db.closed and db.pgconn.transaction_status == TransactionStatus.IDLE and db.autocommit:
        idle.append(db)
    else:
        db.pgconn.finish()


@atexit.register
def _close_all() -> None:
    for kept in (_idle, _idle_async):
        for idle in kept.values():
            while idle:
                idle.pop().pgconn.finish()
