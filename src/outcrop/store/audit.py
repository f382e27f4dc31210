"""The audit trail: who did what, appended in the transaction of the change."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class Line:
    at: datetime
    actor: str
    action: str
    target: str | None = None
    outcome: str = "ok"
    detail: dict[str, Any] = field(default_factory=dict)


async def append(db: Connection, account_id: int | None, line: Line) -> None:
    await db.execute(
        "INSERT INTO audit (account_id, at, actor, action, target, outcome, detail) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [account_id, line.at, line.actor, line.action, line.target, line.outcome, Jsonb(line.detail)],
    )


async def select_all(db: Connection, account_id: int) -> list[Line]:
    """Give every line, oldest first."""
    cursor = await db.execute(
        "SELECT at, actor, action, target, outcome, detail FROM audit WHERE account_id = %s ORDER BY id", [account_id]
    )
    return [Line(*row) for row in await cursor.fetchall()]


async def select_about(db: Connection, account_id: int, target: str, *, most: int = 200) -> list[Line]:
    """Give the newest lines about one thing, newest first."""
    cursor = await db.execute(
        "SELECT at, actor, action, target, outcome, detail FROM audit WHERE account_id = %s AND target = %s ORDER BY id DESC LIMIT %s",
        [account_id, target, most],
    )
    return [Line(*row) for row in await cursor.fetchall()]
