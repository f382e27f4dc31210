"""Tries to sign in, counted over all processes: so many failures for an e-mail address and for a network, in 15 minutes."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from outcrop.store.db import Connection

PER_EMAIL, PER_NETWORK = 5, 30
WINDOW = timedelta(minutes=15)
_LOCK_EMAIL, _LOCK_NETWORK = 7_264_005, 7_264_006
_DIGEST = "sha256(convert_to(lower(%s), 'UTF8'))"


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A try that counts as a failure until it is known to be none."""

    id: int | None
    retry_after: int = 0  # seconds; where there is no try


async def begin_attempt(db: Connection, email: str, network: str | None, *, now: datetime) -> SignInAttempt:
    """Count a try before it is looked at, so that many at once are no way around the limit; refused ones do not count.

    Everybody takes the e-mail's lock first and the network's second, so nobody waits in a circle.
    """
    await db.execute("SELECT pg_advisory_xact_lock(%s, hashtext(lower(%s)))", [_LOCK_EMAIL, email])
    await db.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_NETWORK, network])
    since = now - WINDOW
    cursor = await db.execute(
        f"""SELECT greatest(
                (SELECT at FROM sign_in_attempts WHERE email = {_DIGEST} AND at > %s ORDER BY at DESC OFFSET %s LIMIT 1),
                (SELECT at FROM sign_in_attempts WHERE network = %s AND at > %s ORDER BY at DESC OFFSET %s LIMIT 1))""".encode(),
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
    """Let the try stand. The write also lets the answer for an unknown address wait for the disk, as a known one's audit line does."""
    await db.execute("UPDATE sign_in_attempts SET failed = true WHERE id = %s", [attempt])


async def delete_attempt(db: Connection, attempt: int) -> None:
    """Take one try back: it was neither a success nor a failure."""
    await db.execute("DELETE FROM sign_in_attempts WHERE id = %s", [attempt])


async def delete_attempts(db: Connection, email: str) -> None:
    """Begin anew for an e-mail address."""
    await db.execute(f"DELETE FROM sign_in_attempts WHERE email = {_DIGEST}".encode(), [email])


async def delete_expired(db: Connection, *, now: datetime) -> int:
    return (await db.execute("DELETE FROM sign_in_attempts WHERE at <= %s", [now - WINDOW])).rowcount
