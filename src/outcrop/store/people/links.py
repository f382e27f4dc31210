"""Store the SHA-256 of one-time links (invitations and password resets) until they are used."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.account import LinkKind, OneTimeLink, Role
from outcrop.store.db import Connection

_LINK = "l.id, l.kind, a.slug, l.email, l.role, l.created_by, l.created_at, l.expires_at"


@dataclass(frozen=True, slots=True)
class UsedLink:
    """A link that was used and deleted."""

    link: OneTimeLink
    account_id: int
    member_id: UUID | None  # the member whose password a reset sets


async def insert(
    db: Connection,
    account_id: int,
    link: OneTimeLink,
    digest: bytes,
    *,
    member_id: UUID | None,
    invited_by: UUID | None,
) -> None:
    """Insert a link, and delete an earlier one of the same kind for the same e-mail address."""
    await db.execute(
        "DELETE FROM links WHERE account_id = %s AND kind = %s AND lower(email) = lower(%s)",
        [account_id, link.kind, link.email],
    )
    await db.execute(
        """INSERT INTO links (digest, id, account_id, kind, email, role, member_id, invited_by, created_by,
                              created_at, expires_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            *(digest, link.id, account_id, link.kind, link.email, link.role),
            *(member_id, invited_by, link.created_by, link.created_at, link.expires_at),
        ],
    )


async def select(db: Connection, digest: bytes, *, now: datetime) -> OneTimeLink | None:
    """Return the link with this digest; None if it does not exist, was used or has expired."""
    cursor = await db.execute(
        f"""SELECT {_LINK} FROM links l JOIN accounts a ON a.id = l.account_id
            WHERE l.digest = %s AND l.expires_at > %s""".encode(),
        [digest, now],
    )
    row = await cursor.fetchone()
    return None if row is None else _build_link(row)


async def use_link(db: Connection, digest: bytes, *, now: datetime) -> UsedLink | None:
    """Delete and return the link with this digest. A second or simultaneous call returns None."""
    cursor = await db.execute(
        f"""DELETE FROM links l USING accounts a
            WHERE a.id = l.account_id AND l.digest = %s AND l.expires_at > %s
            RETURNING {_LINK}, l.account_id, l.member_id""".encode(),
        [digest, now],
    )
    row = await cursor.fetchone()
    return None if row is None else UsedLink(_build_link(row[:8]), row[8], row[9])


async def select_invitations(db: Connection, account_id: int) -> list[OneTimeLink]:
    """Return the account's open invitations, newest first."""
    cursor = await db.execute(
        f"""SELECT {_LINK} FROM links l JOIN accounts a ON a.id = l.account_id
            WHERE l.account_id = %s AND l.kind = 'invite' ORDER BY l.created_at DESC, l.id""".encode(),
        [account_id],
    )
    return [_build_link(row) for row in await cursor.fetchall()]


async def lock_invitation(db: Connection, account_id: int, link_id: UUID) -> OneTimeLink | None:
    """Lock an invitation until the transaction ends, and return it."""
    cursor = await db.execute(
        f"""SELECT {_LINK} FROM links l JOIN accounts a ON a.id = l.account_id
            WHERE l.account_id = %s AND l.id = %s AND l.kind = 'invite' FOR UPDATE OF l""".encode(),
        [account_id, link_id],
    )
    row = await cursor.fetchone()
    return None if row is None else _build_link(row)


async def delete(db: Connection, account_id: int, link_id: UUID) -> None:
    """Delete one link of the account."""
    await db.execute("DELETE FROM links WHERE account_id = %s AND id = %s", [account_id, link_id])


async def delete_invitations_by(db: Connection, account_id: int, member_id: UUID) -> int:
    """Delete all invitations that a member made; return their number."""
    return (
        await db.execute(
            "DELETE FROM links WHERE account_id = %s AND invited_by = %s", [account_id, member_id]
        )
    ).rowcount


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Delete expired links of all accounts; return their number."""
    return (await db.execute("DELETE FROM links WHERE expires_at <= %s", [now])).rowcount


def _build_link(row: tuple[Any, ...]) -> OneTimeLink:
    """Return the link of a row with the columns of `_LINK`."""
    return OneTimeLink(row[0], LinkKind(row[1]), row[2], row[3], Role(row[4]), row[5], row[6], row[7])
