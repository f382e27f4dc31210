"""Store until when a code host takes no requests with a token. All workers share this."""

from outcrop.store.db import Connection

_KEPT = "interval '1 day'"  # after the end of a limit


async def select(db: Connection, key: bytes) -> tuple[float, str] | None:
    """Return the seconds for which requests are blocked, and why; None if they are not."""
    cursor = await db.execute(
        """SELECT extract(epoch FROM blocked_until - clock_timestamp())::float8, reason FROM host_limits
           WHERE key = %s AND blocked_until > clock_timestamp()""",
        [key],
    )
    return await cursor.fetchone()


async def block(db: Connection, key: bytes, *, seconds: float, reason: str) -> None:
    """Block requests for so many seconds, unless they are blocked for longer; forget old limits."""
    await db.execute(
        """INSERT INTO host_limits AS h VALUES (%s, clock_timestamp() + make_interval(secs => %s), %s)
           ON CONFLICT (key) DO UPDATE SET blocked_until = excluded.blocked_until, reason = excluded.reason
           WHERE h.blocked_until < excluded.blocked_until""",
        [key, seconds, reason],
    )
    await db.execute(
        f"""DELETE FROM host_limits WHERE key IN (
                SELECT key FROM host_limits WHERE blocked_until < clock_timestamp() - {_KEPT}
                FOR UPDATE SKIP LOCKED)""".encode()
    )
