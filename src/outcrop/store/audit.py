"""Append lines to the audit trail, in the transaction of the change that they record, and read them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from outcrop.domain.audit import AuditFilter
from outcrop.store.db import Connection

_COLUMNS = "at, actor, action, target, outcome, detail"


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One recorded action: who did what to which target, when, and with which outcome."""

    at: datetime
    actor: str
    action: str
    target: str | None = None
    outcome: str = "ok"
    detail: dict[str, Any] = field(default_factory=dict)


async def append(db: Connection, account_id: int | None, line: AuditLine) -> None:
    """Append a line to an account's trail; with None, to the operator's, which belongs to no account."""
    await db.execute(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           VALUES (%s, %s, %s, %s, %s, %s, %s)""",
        [account_id, line.at, line.actor, line.action, line.target, line.outcome, Jsonb(line.detail)],
    )


async def append_many(
    db: Connection,
    account_id: int,
    lines: Sequence[tuple[str, dict[str, Any]]],
    *,
    at: datetime,
    actor: str,
    action: str,
) -> None:
    """Append lines about an action on several targets to an account's trail; `lines` are (target, detail)."""
    if not lines:
        return
    await db.execute(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           SELECT %s, %s, %s, %s, target, 'ok', detail
           FROM unnest(%s::text[], %s::jsonb[]) AS line (target, detail)""",
        [
            *(account_id, at, actor, action),
            *([target for target, _ in lines], [Jsonb(detail) for _, detail in lines]),
        ],
    )


async def append_to_every_account(db: Connection, line: AuditLine) -> None:
    """Append the same line to the trail of every account."""
    await db.execute(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           SELECT id, %s, %s, %s, %s, %s, %s FROM accounts ORDER BY id""",
        [line.at, line.actor, line.action, line.target, line.outcome, Jsonb(line.detail)],
    )


async def select_batch(
    db: Connection, account_id: int | None, wanted: AuditFilter, *, after: int, limit: int
) -> list[tuple[int, AuditLine]]:
    """Return (id, line) of the oldest lines that match the filter and have an id above `after`."""
    where, values = _build_conditions(account_id, wanted)
    cursor = await db.execute(
        f"""SELECT id, {_COLUMNS} FROM audit WHERE {where} AND id > %(after)s
            ORDER BY id LIMIT %(limit)s""".encode(),
        values | {"after": after, "limit": limit},
    )
    return [(row[0], AuditLine(*row[1:])) for row in await cursor.fetchall()]


async def select_page(
    db: Connection, account_id: int, wanted: AuditFilter, *, limit: int, before: int | None
) -> list[tuple[int, AuditLine]]:
    """Return (id, line) of the newest lines that match the filter, newest first.

    `before` is the last id of the previous page: only lines with a smaller id are returned.
    """
    where, values = _build_conditions(account_id, wanted)
    cursor = await db.execute(
        f"""SELECT id, {_COLUMNS} FROM audit
            WHERE {where} AND (%(before)s::bigint IS NULL OR id < %(before)s)
            ORDER BY id DESC LIMIT %(limit)s""".encode(),
        values | {"before": before, "limit": limit},
    )
    return [(row[0], AuditLine(*row[1:])) for row in await cursor.fetchall()]


async def select_for_target(
    db: Connection, account_id: int, target: str, *, limit: int = 200
) -> list[AuditLine]:
    """Return the newest lines about one target (such as a finding's id), newest first."""
    cursor = await db.execute(
        f"""SELECT {_COLUMNS} FROM audit WHERE account_id = %s AND target = %s
            ORDER BY id DESC LIMIT %s""".encode(),
        [account_id, target, limit],
    )
    return [AuditLine(*row) for row in await cursor.fetchall()]


async def select_for_targets(
    db: Connection, account_id: int, targets: Sequence[str], *, limit: int
) -> list[AuditLine]:
    """Return the newest lines about any of several targets, newest first."""
    cursor = await db.execute(
        f"""WITH found AS MATERIALIZED (
                SELECT id, {_COLUMNS} FROM audit WHERE account_id = %s AND target = ANY(%s))
            SELECT {_COLUMNS} FROM found ORDER BY id DESC LIMIT %s""".encode(),
        [account_id, list(targets), limit],
    )
    return [AuditLine(*row) for row in await cursor.fetchall()]


def _build_conditions(account_id: int | None, wanted: AuditFilter) -> tuple[str, dict[str, object]]:
    """Return the SQL conditions for the trail and each field of the filter that is set, and the values."""
    conditions = {
        "action": "(action = %(action)s OR starts_with(action, %(action)s || '.'))",
        "actor": "actor = %(actor)s",
        "target": "target = %(target)s",
        "outcome": "outcome = %(outcome)s",
        "since": "at >= %(since)s",
        "until": "at < %(until)s",
    }
    values = {name: value for name in conditions if (value := getattr(wanted, name)) is not None}
    of_trail = "account_id IS NULL" if account_id is None else "account_id = %(account)s"
    sql = " AND ".join([of_trail, *(conditions[name] for name in values)])
    return sql, {"account": account_id, **values}
