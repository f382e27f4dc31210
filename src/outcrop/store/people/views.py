"""Store saved views."""

from uuid import UUID

from outcrop.domain.errors import BadInputError
from outcrop.domain.paging import SavedView
from outcrop.store.db import Connection

_VIEW = "id, name, query, created_by, created_at"


async def insert(db: Connection, account_id: int, view: SavedView) -> None:
    """Insert a view; raise BadInputError if the account has one with this name."""
    cursor = await db.execute(
        """INSERT INTO views (account_id, id, name, query, created_by, created_at)
           VALUES (%s, %s, %s, %s, %s, %s)
           ON CONFLICT (account_id, lower(name)) DO NOTHING""",
        [account_id, view.id, view.name, view.query, view.created_by, view.created_at],
    )
    if not cursor.rowcount:
        raise BadInputError(f"there is a view named {view.name} already")


async def count(db: Connection, account_id: int) -> int:
    """Return the number of the account's views."""
    row = await (
        await db.execute("SELECT count(*) FROM views WHERE account_id = %s", [account_id])
    ).fetchone()
    return 0 if row is None else int(row[0])


async def select_all(db: Connection, account_id: int) -> list[SavedView]:
    """Return the account's views, by name."""
    cursor = await db.execute(
        f"SELECT {_VIEW} FROM views WHERE account_id = %s ORDER BY lower(name), id".encode(), [account_id]
    )
    return [SavedView(*row) for row in await cursor.fetchall()]


async def delete(db: Connection, account_id: int, view_id: UUID) -> SavedView | None:
    """Delete a view; return the deleted view, or None if it did not exist."""
    cursor = await db.execute(
        f"DELETE FROM views WHERE account_id = %s AND id = %s RETURNING {_VIEW}".encode(),
        [account_id, view_id],
    )
    row = await cursor.fetchone()
    return None if row is None else SavedView(*row)
