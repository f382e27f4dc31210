"""Check whether the database can still write: free space on its volume, and a small write."""

import shutil
from pathlib import Path

import psycopg

from outcrop.store.db import Connection, fetch_single_row


async def find_data_folder(db: Connection) -> Path | None:
    """Return the folder of a server on this machine; None if the server is elsewhere or does not say it."""
    if not db.info.host.startswith("/"):
        return None
    try:
        (folder,) = await fetch_single_row(db, "SELECT current_setting('data_directory')")
    except psycopg.errors.InsufficientPrivilege:
        return None
    return Path(str(folder))


def count_free_bytes(folder: Path) -> int | None:
    """Return the free bytes of the folder's volume; None if this process cannot see the folder."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


async def find_write_error(db: Connection) -> str | None:
    """Write a little, and return the name of the error if that fails; raise if the database is unavailable.

    A temporary table needs a new block. A row in an existing file would not do: it fits into a full volume.
    """
    try:
        await db.execute("CREATE TEMP TABLE probe ON COMMIT DROP AS SELECT 1 AS written")
    except psycopg.Error as error:
        if db.closed or isinstance(error, psycopg.errors.QueryCanceled):
            raise
        return type(error).__name__
    return None
