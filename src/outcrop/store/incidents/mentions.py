"""Store which members a comment mentions, and whether they have seen it."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from outcrop.domain.incident.mentions import Mention
from outcrop.store.db import Connection


async def insert(
    db: Connection, account_id: int, comment_id: UUID, addresses: Sequence[str], *, by: str
) -> list[str]:
    """Save the members among these addresses, in lower case, without the author; return their addresses."""
    if not addresses:
        return []
    cursor = await db.execute(
        """WITH mentioned AS (
               INSERT INTO mentions (account_id, member_id, comment_id)
               SELECT account_id, id, %s FROM members
               WHERE account_id = %s AND lower(email) = ANY(%s) AND lower(email) <> lower(%s)
               RETURNING account_id, member_id)
           SELECT m.email FROM mentioned n
           JOIN members m ON m.account_id = n.account_id AND m.id = n.member_id ORDER BY m.email""",
        [comment_id, account_id, list(addresses), by],
    )
    return [email for (email,) in await cursor.fetchall()]


async def select_newest(db: Connection, account_id: int, member_id: UUID, limit: int) -> list[Mention]:
    """Return the newest mentions of a member: those that the member has not seen first."""
    cursor = await db.execute(
        """SELECT c.id, c.incident_id, c.at, c.by, c.text, n.seen_at
           FROM mentions n JOIN incident_comments c ON c.account_id = n.account_id AND c.id = n.comment_id
           WHERE n.account_id = %s AND n.member_id = %s
           ORDER BY n.seen_at IS NOT NULL, c.n DESC LIMIT %s""",
        [account_id, member_id, limit],
    )
    return [Mention(*row) for row in await cursor.fetchall()]


async def count_unseen(db: Connection, account_id: int, member_id: UUID) -> int:
    """Return the number of mentions that a member has not seen."""
    cursor = await db.execute(
        "SELECT count(*) FROM mentions WHERE account_id = %s AND member_id = %s AND seen_at IS NULL",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def mark_seen(
    db: Connection, account_id: int, member_id: UUID, comment_ids: Sequence[UUID], *, now: datetime
) -> set[UUID]:
    """Save that a member sees these comments; return those that mention the member."""
    if not comment_ids:
        return set()
    values = [account_id, member_id, list(comment_ids)]
    await db.execute(
        """UPDATE mentions SET seen_at = %s
           WHERE account_id = %s AND member_id = %s AND comment_id = ANY(%s) AND seen_at IS NULL""",
        [now, *values],
    )
    cursor = await db.execute(
        """SELECT comment_id FROM mentions
           WHERE account_id = %s AND member_id = %s AND comment_id = ANY(%s)""",
        values,
    )
    return {comment_id for (comment_id,) in await cursor.fetchall()}
