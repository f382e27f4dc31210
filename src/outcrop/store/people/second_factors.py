"""The second step of signing in at rest: the sealed secret, the last step that was used, and the recovery codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class SecondFactor:
    box: bytes
    last_step: int
    confirmed: bool


async def save_unconfirmed(db: Connection, account_id: int, member_id: UUID, box: bytes) -> None:
    """Keep a secret that is still to be confirmed, in place of an earlier one that never was."""
    await db.execute(
        """INSERT INTO second_factors (member_id, account_id, box) VALUES (%s, %s, %s)
           ON CONFLICT (member_id) DO UPDATE SET box = excluded.box, last_step = 0 WHERE second_factors.confirmed_at IS NULL""",
        [member_id, account_id, box],
    )


async def lock(db: Connection, account_id: int, member_id: UUID) -> SecondFactor | None:
    """Give a member's second step for this transaction alone: two tries with one code come one after the other."""
    cursor = await db.execute(
        "SELECT box, last_step, confirmed_at IS NOT NULL FROM second_factors WHERE account_id = %s AND member_id = %s FOR UPDATE",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return None if row is None else SecondFactor(*row)


async def confirm(
    db: Connection, account_id: int, member_id: UUID, step: int, digests: Sequence[bytes], *, now: datetime
) -> None:
    await db.execute(
        "UPDATE second_factors SET confirmed_at = %s, last_step = %s WHERE account_id = %s AND member_id = %s",
        [now, step, account_id, member_id],
    )
    await db.execute("DELETE FROM recovery_codes WHERE member_id = %s", [member_id])
    await db.execute("INSERT INTO recovery_codes SELECT %s, unnest(%s::bytea[])", [member_id, list(digests)])


async def update_last_step(db: Connection, account_id: int, member_id: UUID, step: int) -> None:
    await db.execute(
        "UPDATE second_factors SET last_step = %s WHERE account_id = %s AND member_id = %s",
        [step, account_id, member_id],
    )


async def use_recovery_code(db: Connection, member_id: UUID, digest: bytes) -> bool:
    """Use a recovery code up; tell whether it was one."""
    cursor = await db.execute(
        "DELETE FROM recovery_codes WHERE member_id = %s AND digest = %s", [member_id, digest]
    )
    return cursor.rowcount == 1


async def count_recovery_codes(db: Connection, account_id: int, member_id: UUID) -> int | None:
    """Count the recovery codes that are left; None where the second step is off."""
    cursor = await db.execute(
        """SELECT (SELECT count(*) FROM recovery_codes r WHERE r.member_id = f.member_id) FROM second_factors f
           WHERE account_id = %s AND member_id = %s AND confirmed_at IS NOT NULL""",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def delete(db: Connection, account_id: int, member_id: UUID) -> bool:
    """Take the second step off; tell whether it had been on."""
    cursor = await db.execute(
        "DELETE FROM second_factors WHERE account_id = %s AND member_id = %s RETURNING confirmed_at IS NOT NULL",
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
