"""Count failed sign-ins over all processes, and refuse further ones for an e-mail address or a network.

An attempt counts as failed from its begin, so that many attempts at once cannot exceed the limit.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from outcrop.store.db import Connection
from outcrop.store.locks import AdvisoryLock

PER_EMAIL, PER_NETWORK = 5, 30  # failures in WINDOW after which further attempts are refused
WINDOW = timedelta(minutes=15)
_DIGEST = "sha256(convert_to(lower(%s), 'UTF8'))"


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A begun attempt; the id is None if it was refused."""

    id: int | None
    retry_after: int = 0  # seconds; only of a refused attempt


async def begin_attempt(db: Connection, email: str, network: str | None, *, now: datetime) -> SignInAttempt:
    """Insert an attempt, which counts as failed at once, or refuse it if the limit is reached.

    Refused attempts do not count.

    Every transaction takes the lock of the e-mail address first and that of the network second, so that
    there is no deadlock.
    """
    await db.execute(
        "SELECT pg_advisory_xact_lock(%s, hashtext(lower(%s)))", [AdvisoryLock.SIGN_IN_EMAIL, email]
    )
    await db.execute(
        "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [AdvisoryLock.SIGN_IN_NETWORK, network]
    )
    since = now - WINDOW
    cursor = await db.execute(
        f"""SELECT greatest(
                (SELECT at FROM sign_in_attempts WHERE email = {_DIGEST} AND at > %s
                 ORDER BY at DESC OFFSET %s LIMIT 1),
                (SELECT at FROM sign_in_attempts WHERE network = %s AND at > %s
                 ORDER BY at DESC OFFSET %s LIMIT 1))""".encode(),
        [email, since, PER_EMAIL - 1, network, since, PER_NETWORK - 1],
    )
    row = await cursor.fetchone()
    if row is not None and row[0] is not None:
        return SignInAttempt(None, max(1, math.ceil((row[0] + WINDOW - now).total_seconds())))
    cursor = await db.execute(
        f"INSERT INTO sign_in_attempts (email, network, at) VALUES ({_DIGEST}, %s, %s) RETURNING id".encode(),
        [email, network, now],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - an INSERT without a condition has one row
    return SignInAttempt(row[0])


async def mark_failed(db: Connection, attempt: int) -> None:
    """Mark an attempt as failed; it counts already.

    The write has a purpose of its own: the response for an unknown address waits for the disk as long as
    the one for a known address, which writes an audit line.
    """
    await db.execute("UPDATE sign_in_attempts SET failed = true WHERE id = %s", [attempt])


async def delete_attempt(db: Connection, attempt: int) -> None:
    """Delete an attempt that neither succeeded nor failed."""
    await db.execute("DELETE FROM sign_in_attempts WHERE id = %s", [attempt])


async def delete_attempts(db: Connection, email: str) -> None:
    """Delete all attempts for an e-mail address, as after a success."""
    await db.execute(f"DELETE FROM sign_in_attempts WHERE email = {_DIGEST}".encode(), [email])


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Delete attempts that no longer count; return their number."""
    return (await db.execute("DELETE FROM sign_in_attempts WHERE at <= %s", [now - WINDOW])).rowcount
