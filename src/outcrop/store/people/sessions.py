"""Sessions of the portal at rest, and the one statement that tells who a request comes from."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from outcrop.domain.account import Account, Member, Plan, Role, SessionSummary, SignedInMember
from outcrop.store.db import Connection

MAX_IDLE, MAX_AGE = timedelta(days=14), timedelta(days=30)
_TOUCH_EVERY = timedelta(minutes=1)


async def insert(
    db: Connection, account_id: int, member_id: UUID, line: SessionSummary, digest: bytes
) -> None:
    await db.execute(
        """INSERT INTO sessions (digest, id, account_id, member_id, created_at, last_used_at, address, agent)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            digest,
            line.id,
            account_id,
            member_id,
            line.created_at,
            line.last_used_at,
            line.address,
            line.agent,
        ],
    )


async def resume_session(db: Connection, digest: bytes, *, now: datetime) -> SignedInMember | None:
    """Tell whose session it is. Role and plan are those of this moment; the use is noted at most once a minute."""
    cursor = await db.execute(
        """SELECT s.id, s.last_used_at, m.id, m.email, m.role, m.created_at, a.id, a.slug, a.plan, a.email, a.created_at
           FROM sessions s JOIN members m ON m.id = s.member_id JOIN accounts a ON a.id = m.account_id
           WHERE s.digest = %s AND s.created_at > %s AND s.last_used_at > %s""",
        [digest, now - MAX_AGE, now - MAX_IDLE],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    if row[1] <= now - _TOUCH_EVERY:
        # Another request of the same browser may be noting it; nobody waits for that.
        await db.execute(
            """UPDATE sessions SET last_used_at = %s WHERE digest IN
               (SELECT digest FROM sessions WHERE digest = %s AND last_used_at <= %s FOR UPDATE SKIP LOCKED)""",
            [now, digest, now - _TOUCH_EVERY],
        )
    return _signed(row)


async def select_all(db: Connection, account_id: int, member_id: UUID) -> list[SessionSummary]:
    """Last used first."""
    cursor = await db.execute(
        """SELECT id, created_at, last_used_at, address, agent FROM sessions
           WHERE account_id = %s AND member_id = %s ORDER BY last_used_at DESC, created_at DESC, id""",
        [account_id, member_id],
    )
    return [SessionSummary(*row) for row in await cursor.fetchall()]


async def delete(db: Connection, digest: bytes) -> tuple[int, UUID, str] | None:
    """End a session; give its account, its id and the member's e-mail."""
    cursor = await db.execute(
        "DELETE FROM sessions s USING members m WHERE s.digest = %s AND m.id = s.member_id RETURNING s.account_id, s.id, m.email",
        [digest],
    )
    return await cursor.fetchone()


async def delete_one(db: Connection, account_id: int, member_id: UUID, session_id: UUID) -> bool:
    cursor = await db.execute(
        "DELETE FROM sessions WHERE account_id = %s AND member_id = %s AND id = %s",
        [account_id, member_id, session_id],
    )
    return cursor.rowcount == 1


async def delete_all(db: Connection, account_id: int, member_id: UUID, *, keep: UUID | None = None) -> int:
    """End a member's sessions, all or all but one; give how many."""
    cursor = await db.execute(
        "DELETE FROM sessions WHERE account_id = %s AND member_id = %s AND id IS DISTINCT FROM %s",
        [account_id, member_id, keep],
    )
    return cursor.rowcount


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Forget sessions that are over, whosever they are."""
    cursor = await db.execute(
        "DELETE FROM sessions WHERE created_at <= %s OR last_used_at <= %s", [now - MAX_AGE, now - MAX_IDLE]
    )
    return cursor.rowcount


def _signed(row: tuple[Any, ...]) -> SignedInMember:
    session_id, _, member_id, email, role, joined, account_id, slug, plan, account_email, created = row
    member = Member(member_id, slug, email, Role(role), joined)
    return SignedInMember(session_id, member, Account(account_id, slug, Plan(plan), account_email, created))
