"""Reading the audit trail."""

from typing import Any

from outcrop.domain.account import Account
from outcrop.store import audit
from outcrop.store.db import Connection


async def read_trail(db: Connection, account: Account) -> list[dict[str, Any]]:
    """Give every line of the account, oldest first, as plain JSON values."""
    return [
        {
            "at": line.at.isoformat(),
            "actor": line.actor,
            "action": line.action,
            "target": line.target,
            "outcome": line.outcome,
            "detail": line.detail,
        }
        for line in await audit.select_all(db, account.id)
    ]
