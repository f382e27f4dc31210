"""Saved views of an account's findings: every member sees them all."""

from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.paging import SavedView
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.people import accounts, views

NAME_LENGTH, QUERY_LENGTH, MOST = 60, 2_000, 100


async def list_views(db: Connection, account: Account) -> list[SavedView]:
    return await views.select_all(db, account.id)


async def save_view(
    db: Connection, account: Account, *, name: str, query: str, by: str, now: datetime
) -> SavedView:
    """Keep a list's query under a name that the account has not given yet."""
    name = name.strip()
    if not 0 < len(name) <= NAME_LENGTH or not name.isprintable():
        raise BadInputError(f"a view's name has 1 to {NAME_LENGTH} printable characters")
    if len(query) > QUERY_LENGTH or not query.isprintable():
        raise BadInputError(f"a view's query has at most {QUERY_LENGTH:,} printable characters")
    await accounts.lock_account(db, account.id)
    if await views.count(db, account.id) >= MOST:
        raise BadInputError(f"an account has at most {MOST} views: remove one first")
    view = SavedView(uuid4(), name, query.removeprefix("?"), by, now)
    await views.insert(db, account.id, view)
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "view.save", str(view.id), detail={"name": name})
    )
    return view


async def remove_view(
    db: Connection, account: Account, view_id: UUID, *, by: str, now: datetime
) -> SavedView:
    if (view := await views.delete(db, account.id, view_id)) is None:
        raise NotFoundError("there is no such view")
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "view.remove", str(view.id), detail={"name": view.name})
    )
    return view
