"""Append and read comments on incidents."""

from uuid import UUID

from outcrop.domain.incident import Comment
from outcrop.store.db import Connection, fetch_single_row


async def insert(db: Connection, account_id: int, incident_id: UUID, comment: Comment) -> None:
    """Append a comment."""
    await db.execute(
        """INSERT INTO incident_comments (account_id, id, incident_id, at, by, text)
           VALUES (%s, %s, %s, %s, %s, %s)""",
        [account_id, comment.id, incident_id, comment.at, comment.by, comment.text],
    )


async def select_page(
    db: Connection, account_id: int, incident_id: UUID, *, offset: int, limit: int
) -> tuple[int, list[Comment]]:
    """Return the number of comments on an incident, and a part of them, newest first."""
    (total,) = await fetch_single_row(
        db,
        "SELECT count(*) FROM incident_comments WHERE account_id = %s AND incident_id = %s",
        [account_id, incident_id],
    )
    if offset >= total:
        return total, []
    cursor = await db.execute(
        """SELECT id, at, by, text FROM incident_comments WHERE account_id = %s AND incident_id = %s
           ORDER BY n DESC OFFSET %s LIMIT %s""",
        [account_id, incident_id, offset, limit],
    )
    return total, [Comment(*row) for row in await cursor.fetchall()]
