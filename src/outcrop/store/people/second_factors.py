"""Store members' second factors (TOTP): the encrypted secret, the last time step used, and recovery codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class SecondFactor:
    """A member's encrypted TOTP secret, the time step of the last used code, and whether it is confirmed."""

    box: bytes
    last_step: int
    confirmed: bool


async def save_unconfirmed(db: Connection, account_id: int, member_id: UUID, box: bytes) -> None:
    """Save a secret that is not confirmed yet. It replaces an unconfirmed one, but never a confirmed one."""
    await db.execute(
        """INSERT INTO second_factors (member_id, account_id, box) VALUES (%s, %s, %s)
           ON CONFLICT (member_id) DO UPDATE SET box = excluded.box, last_step = 0
           WHERE second_factors.confirmed_at IS NULL""",
        [member_id, account_id, box],
    )


async def lock(db: Connection, account_id: int, member_id: UUID) -> SecondFactor | None:
    """Lock and return a member's second factor, so that two sign-ins cannot use the same code at once."""
    cursor = await db.execute(
        """SELECT box, last_step, confirmed_at IS NOT NULL FROM second_factors
           WHERE account_id = %s AND member_id = %s FOR UPDATE""",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return None if row is None else SecondFactor(*row)


async def confirm(
    db: Connection, account_id: int, member_id: UUID, step: int, digests: Sequence[bytes], *, now: datetime
) -> None:
    """Turn a second factor on: save the time step of its first code and the digests of new recovery codes."""
    await db.execute(
        """UPDATE second_factors SET confirmed_at = %s, last_step = %s
           WHERE account_id = %s AND member_id = %s""",
        [now, step, account_id, member_id],
    )
    await replace_recovery_codes(db, account_id, member_id, digests)


async def replace_recovery_codes(
    db: Connection, account_id: int, member_id: UUID, digests: Sequence[bytes]
) -> None:
    """Replace a member's recovery codes by those with these digests."""
    member = "FROM second_factors f WHERE f.account_id = %s AND f.member_id = %s"
    await db.execute(
        f"DELETE FROM recovery_codes WHERE member_id IN (SELECT f.member_id {member})".encode(),
        [account_id, member_id],
    )
    await db.execute(
        f"INSERT INTO recovery_codes SELECT f.member_id, unnest(%s::bytea[]) {member}".encode(),
        [list(digests), account_id, member_id],
    )


async def select_members(db: Connection, account_id: int) -> set[UUID]:
    """Return the ids of the account's members who have a confirmed second factor."""
    cursor = await db.execute(
        "SELECT member_id FROM second_factors WHERE account_id = %s AND confirmed_at IS NOT NULL",
        [account_id],
    )
    return {member_id for (member_id,) in await cursor.fetchall()}


async def update_last_step(db: Connection, account_id: int, member_id: UUID, step: int) -> None:
    """Save the time step whose code was used, so that the code does not work again."""
    await db.execute(
        "UPDATE second_factors SET last_step = %s WHERE account_id = %s AND member_id = %s",
        [step, account_id, member_id],
    )


async def use_recovery_code(db: Connection, member_id: UUID, digest: bytes) -> bool:
    """Delete the recovery code with this digest; return whether it existed."""
    cursor = await db.execute(
        "DELETE FROM recovery_codes WHERE member_id = %s AND digest = %s", [member_id, digest]
    )
    return cursor.rowcount == 1


async def count_recovery_codes(db: Connection, account_id: int, member_id: UUID) -> int | None:
    """Return the number of unused recovery codes; None if the member has no confirmed second factor."""
    cursor = await db.execute(
        """SELECT (SELECT count(*) FROM recovery_codes r WHERE r.member_id = f.member_id)
           FROM second_factors f
           WHERE account_id = %s AND member_id = %s AND confirmed_at IS NOT NULL""",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def delete(db: Connection, account_id: int, member_id: UUID) -> bool:
    """Delete a member's second factor; return whether it was confirmed."""
    cursor = await db.execute(
        """DELETE FROM second_factors WHERE account_id = %s AND member_id = %s
           RETURNING confirmed_at IS NOT NULL""",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
