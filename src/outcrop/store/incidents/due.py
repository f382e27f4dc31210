"""Save within how many days an account's incidents are due, by severity."""

from collections.abc import Mapping

from outcrop.domain.finding import Severity
from outcrop.store.db import Connection


async def select_days(db: Connection, account_id: int) -> dict[Severity, int]:
    """Return the days of each severity that has a due date."""
    cursor = await db.execute("SELECT severity, days FROM due_days WHERE account_id = %s", [account_id])
    return {Severity(severity): days for severity, days in await cursor.fetchall()}


async def save_days(db: Connection, account_id: int, days: Mapping[Severity, int]) -> None:
    """Replace the days, and let all incidents be computed again."""
    await db.execute("DELETE FROM due_days WHERE account_id = %s", [account_id])
    for severity, number in days.items():
        await db.execute("INSERT INTO due_days VALUES (%s, %s, %s)", [account_id, severity, number])
    await db.execute(
        """INSERT INTO incident_changes (account_id, id)
           SELECT account_id, id FROM incidents WHERE account_id = %s""",
        [account_id],
    )
