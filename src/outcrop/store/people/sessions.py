"""Store the portal's sessions, and find the member that a request comes from."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from outcrop.domain.account import Account, Member, Plan, Role, SessionSummary, SignedInMember
from outcrop.store.db import Connection

MAX_IDLE, MAX_AGE = timedelta(days=14), timedelta(days=30)
_USE_PRECISION = timedelta(minutes=1)  # a session's last use is written at most this often


async def insert(
    db: Connection, account_id: int, member_id: UUID, session: SessionSummary, digest: bytes
) -> None:
    """Insert a session of a member. Of its token only the SHA-256 digest is stored."""
    await db.execute(
        """INSERT INTO sessions (digest, id, account_id, member_id, created_at, last_used_at, address, agent)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            *(digest, session.id, account_id, member_id),
            *(session.created_at, session.last_used_at, session.address, session.agent),
        ],
    )


async def resume_session(db: Connection, digest: bytes, *, now: datetime) -> SignedInMember | None:
    """Return the member and account of a session, with their current role and plan, and save the time of use.

    None if the session does not exist or has expired.
    """
    cursor = await db.execute(
        """SELECT s.id, s.last_used_at, m.id, m.email, m.role, m.created_at,
                  a.id, a.slug, a.plan, a.email, a.created_at,
                  a.requires_second_factor AND NOT EXISTS (
                      SELECT FROM second_factors f
                      WHERE f.account_id = a.id AND f.member_id = m.id AND f.confirmed_at IS NOT NULL)
           FROM sessions s JOIN members m ON m.id = s.member_id JOIN accounts a ON a.id = m.account_id
           WHERE s.digest = %s AND s.created_at > %s AND s.last_used_at > %s""",
        [digest, now - MAX_AGE, now - MAX_IDLE],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    if row[1] <= now - _USE_PRECISION:
        # Another request of the same browser may be writing the time: do not wait for its lock.
        await db.execute(
            """UPDATE sessions SET last_used_at = %s WHERE digest IN
               (SELECT digest FROM sessions WHERE digest = %s AND last_used_at <= %s
                FOR UPDATE SKIP LOCKED)""",
            [now, digest, now - _USE_PRECISION],
        )
    return _build_signed_in_member(row)


async def select_all(db: Connection, account_id: int, member_id: UUID) -> list[SessionSummary]:
    """Return a member's sessions, last used first."""
    cursor = await db.execute(
        """SELECT id, created_at, last_used_at, address, agent FROM sessions
           WHERE account_id = %s AND member_id = %s ORDER BY last_used_at DESC, created_at DESC, id""",
        [account_id, member_id],
    )
    return [SessionSummary(*row) for row in await cursor.fetchall()]


async def delete(db: Connection, digest: bytes) -> tuple[int, UUID, str] | None:
    """Delete a session; return its account id, its own id and the member's e-mail address."""
    cursor = await db.execute(
        """DELETE FROM sessions s USING members m WHERE s.digest = %s AND m.id = s.member_id
           RETURNING s.account_id, s.id, m.email""",
        [digest],
    )
    return await cursor.fetchone()


async def delete_by_id(db: Connection, account_id: int, member_id: UUID, session_id: UUID) -> bool:
    """Delete one session of a member; return whether it existed."""
    cursor = await db.execute(
        "DELETE FROM sessions WHERE account_id = %s AND member_id = %s AND id = %s",
        [account_id, member_id, session_id],
    )
    return cursor.rowcount == 1


async def delete_all(db: Connection, account_id: int, member_id: UUID, *, keep: UUID | None = None) -> int:
    """Delete all sessions of a member but the one with the id `keep`; return their number."""
    cursor = await db.execute(
        "DELETE FROM sessions WHERE account_id = %s AND member_id = %s AND id IS DISTINCT FROM %s",
        [account_id, member_id, keep],
    )
    return cursor.rowcount


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Delete expired sessions of all accounts; return their number."""
    cursor = await db.execute(
        "DELETE FROM sessions WHERE created_at <= %s OR last_used_at <= %s", [now - MAX_AGE, now - MAX_IDLE]
    )
    return cursor.rowcount


def _build_signed_in_member(row: tuple[Any, ...]) -> SignedInMember:
    """Return the member of a row of `resume_session`."""
    session_id, _, member_id, email, role, joined, account_id, slug, plan, account_email, created, lacks = row
    member = Member(member_id, slug, email, Role(role), joined)
    account = Account(account_id, slug, Plan(plan), account_email, created)
    return SignedInMember(session_id, member, account, lacks_second_factor=lacks)
