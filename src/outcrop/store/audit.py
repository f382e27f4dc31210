"""The audit trail: who did what, appended in the transaction of the change."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from outcrop.domain.audit import AuditFilter
from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class AuditLine:
    at: datetime
    actor: str
    action: str
    target: str | None = None
    outcome: str = "ok"
    detail: dict[str, Any] = field(default_factory=dict)


async def append(db: Connection, account_id: int | None, line: AuditLine) -> None:
    await db.execute(
        "INSERT INTO audit (account_id, at, actor, action, target, outcome, detail) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [account_id, line.at, line.actor, line.action, line.target, line.outcome, Jsonb(line.detail)],
    )


async def append_to_every_account(db: Connection, line: AuditLine) -> None:
    """Write a line about all of it into the trail of every account."""
    await db.execute(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           SELECT id, %s, %s, %s, %s, %s, %s FROM accounts ORDER BY id""",
        [line.at, line.actor, line.action, line.target, line.outcome, Jsonb(line.detail)],
    )


_LINE = "at, actor, action, target, outcome, detail"


async def stream_lines(db: Connection, account_id: int, wanted: AuditFilter) -> AsyncIterator[AuditLine]:
    """Give the lines one after the other, oldest first, however many there are."""
    where, values = _where(account_id, wanted)
    async with db.transaction(), db.cursor(name="trail") as cursor:
        await cursor.execute(f"SELECT {_LINE} FROM audit WHERE {where} ORDER BY id".encode(), values)
        async for row in cursor:
            yield AuditLine(*row)


async def select_page(
    db: Connection, account_id: int, wanted: AuditFilter, *, limit: int, before: int | None
) -> list[tuple[int, AuditLine]]:
    """Give lines with their numbers, newest first; `before` is the last number of the page before."""
    where, values = _where(account_id, wanted)
    cursor = await db.execute(
        f"""SELECT id, {_LINE} FROM audit WHERE {where} AND (%(before)s::bigint IS NULL OR id < %(before)s)
            ORDER BY id DESC LIMIT %(limit)s""".encode(),
        values | {"before": before, "limit": limit},
    )
    return [(row[0], AuditLine(*row[1:])) for row in await cursor.fetchall()]


async def select_for_target(
    db: Connection, account_id: int, target: str, *, most: int = 200
) -> list[AuditLine]:
    """Give the newest lines about one thing, newest first."""
    cursor = await db.execute(
        f"SELECT {_LINE} FROM audit WHERE account_id = %s AND target = %s ORDER BY id DESC LIMIT %s".encode(),
        [account_id, target, most],
    )
    return [AuditLine(*row) for row in await cursor.fetchall()]


def _where(account_id: int, wanted: AuditFilter) -> tuple[str, dict[str, object]]:
    conditions = {
        "action": "(action = %(action)s OR starts_with(action, %(action)s || '.'))",
        "actor": "actor = %(actor)s",
        "target": "target = %(target)s",
        "outcome": "outcome = %(outcome)s",
        "since": "at >= %(since)s",
        "until": "at < %(until)s",
    }
    given = {name: value for name in conditions if (value := getattr(wanted, name)) is not None}
    return " AND ".join(["account_id = %(account)s", *(conditions[name] for name in given)]), {
        "account": account_id,
        **given,
    }
