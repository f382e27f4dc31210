"""One PostgreSQL server for the run, and databases that are copies of a migrated one."""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from outcrop.store.db import connect
from outcrop.store.embedded.files import lock_file
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.schema import migrate

MIGRATED = "migrated"  # the database with the schema and without rows that others are copied from

_SETTINGS = {
    # nothing is kept after a crash of the machine
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_compression": "off",
    "wal_writer_delay": "10s",
    # With 1 GB, each first use of a page costs a page fault, and each dropped table a search of all pages.
    "shared_buffers": "128MB",
}


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """Yield the server's URL. All test workers share the server in `folder`; the last one stops it.

    The first worker writes the settings, restarts the server for them, and makes the database to copy.
    """
    prepared = folder.with_name("prepared")
    with lock_file(folder.with_name("preparing"), fcntl.LOCK_EX):
        if not prepared.exists():
            with embedded_postgres(folder) as url, psycopg.connect(url, autocommit=True) as db:
                for name, value in _SETTINGS.items():
                    db.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            with embedded_postgres(folder) as url:
                asyncio.run(_migrate(new_database(url, MIGRATED)))
            prepared.touch()
    with embedded_postgres(folder) as url:
        yield url


async def _migrate(url: str) -> None:
    async with await connect(url) as db:
        await migrate(db)


def new_database(cluster: str, name: str, *, template: str = "template1", owner: str = "DEFAULT") -> str:
    """Create a database, empty or as a copy of another one, and return its URL.

    To copy files takes a tenth of the time of the default strategy, which logs each page.
    """
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        db.execute(f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {template} STRATEGY FILE_COPY")
    return psycopg.conninfo.make_conninfo(cluster, dbname=name)


def migrated_database(cluster: str, name: str) -> str:
    """Create a database with the schema and without rows, and return its URL."""
    return new_database(cluster, name, template=MIGRATED)
