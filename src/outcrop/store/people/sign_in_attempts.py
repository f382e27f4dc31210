"""Count failed sign-ins over all processes, and slow down further ones for a member or from a network.

An attempt counts as failed from its begin, so that many attempts at once cannot exceed the limit.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from outcrop import limits
from outcrop.store.db import Connection
from outcrop.store.locks import AdvisoryLock

_WINDOW = timedelta(seconds=limits.SIGN_IN_WINDOW)
_DIGEST = "sha256(convert_to(lower(%(email)s), 'UTF8'))"
_OF_BROWSER = f"email = {_DIGEST} AND browser = %(browser)s"
_OF_NETWORK = f"""email = {_DIGEST} AND browser IS NULL
                  AND (network IS NULL AND %(network)s::text IS NULL OR network = %(network)s)"""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who signs in: the address in the form, the network, and the id of the browser if it is known."""

    email: str
    network: str | None
    browser: str | None = None


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A begun attempt; the id is None if it was refused."""

    id: int | None
    retry_after: int = 0  # seconds; only of a refused attempt


async def begin_attempt(db: Connection, visitor: Visitor, *, now: datetime) -> SignInAttempt:
    """Insert an attempt, which counts as failed at once, or refuse it if it comes too soon after failures.

    Refused attempts do not count. Every transaction takes the lock of the e-mail address first and that of
    the network second, so that there is no deadlock.
    """
    values: dict[str, object] = {
        "email": visitor.email,
        "network": visitor.network,
        "browser": visitor.browser,
        "since": now - _WINDOW,
        "now": now,
    }
    await db.execute(
        "SELECT pg_advisory_xact_lock(%s, hashtext(lower(%s)))", [AdvisoryLock.SIGN_IN_EMAIL, visitor.email]
    )
    if visitor.browser is None:
        await db.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [AdvisoryLock.SIGN_IN_NETWORK, visitor.network]
        )
        slow_downs = {
            _OF_NETWORK: limits.SIGN_IN_NETWORK_AND_MEMBER,
            f"email = {_DIGEST} AND browser IS NULL": limits.SIGN_IN_MEMBER,
            "network = %(network)s AND browser IS NULL": limits.SIGN_IN_NETWORK,
        }
    else:
        slow_downs = {_OF_BROWSER: limits.SIGN_IN_BROWSER}
    waits = [await _wait_seconds(db, *condition, values, now=now) for condition in slow_downs.items()]
    if (wait := max(waits)) > 0:
        return SignInAttempt(None, math.ceil(wait))
    cursor = await db.execute(
        f"""INSERT INTO sign_in_attempts (email, network, browser, at)
            VALUES ({_DIGEST}, %(network)s, %(browser)s, %(now)s) RETURNING id""".encode(),
        values,
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - an INSERT without a condition has one row
    return SignInAttempt(row[0])


async def _wait_seconds(
    db: Connection, condition: str, slow_down: limits.SlowDown, values: dict[str, object], *, now: datetime
) -> float:
    """Return the seconds until the next attempt is allowed by the failures that meet a condition."""
    cursor = await db.execute(
        f"SELECT count(*), max(at) FROM sign_in_attempts WHERE {condition} AND at > %(since)s".encode(),
        values,
    )
    failures, last = await cursor.fetchone() or (0, None)
    pause = slow_down.pause(failures)
    return min(pause, (last + timedelta(seconds=pause) - now).total_seconds()) if pause else 0.0


async def mark_failed(db: Connection, attempt: int) -> None:
    """Mark an attempt as failed; it counts already.

    The write has a purpose of its own: the response for an unknown address waits for the disk as long as
    the one for a known address, which writes an audit line.
    """
    await db.execute("UPDATE sign_in_attempts SET failed = true WHERE id = %s", [attempt])


async def delete_attempt(db: Connection, attempt: int) -> None:
    """Delete an attempt that neither succeeded nor failed."""
    await db.execute("DELETE FROM sign_in_attempts WHERE id = %s", [attempt])


async def delete_own_attempts(db: Connection, visitor: Visitor) -> None:
    """Delete the attempts of a visitor, as after a success. Those of other visitors still count."""
    condition = _OF_NETWORK if visitor.browser is None else _OF_BROWSER
    await db.execute(
        f"DELETE FROM sign_in_attempts WHERE {condition}".encode(),
        {"email": visitor.email, "network": visitor.network, "browser": visitor.browser},
    )


async def delete_attempts(db: Connection, email: str) -> None:
    """Delete all attempts for an e-mail address, as after a new password."""
    await db.execute(f"DELETE FROM sign_in_attempts WHERE email = {_DIGEST}".encode(), {"email": email})


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Delete attempts that no longer count; return their number."""
    return (await db.execute("DELETE FROM sign_in_attempts WHERE at <= %s", [now - _WINDOW])).rowcount
