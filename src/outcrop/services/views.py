"""Save, list and remove views: named queries of the findings list that all members of an account share."""

from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.paging import SavedView
from outcrop.limits import VIEW_NAME_LENGTH, VIEW_QUERY_LENGTH, VIEWS
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.people import accounts, views


async def list_views(db: Connection, account: Account) -> list[SavedView]:
    """Return all saved views of an account."""
    return await views.select_all(db, account.id)


async def save_view(
    db: Connection, account: Account, *, name: str, query: str, by: str, now: datetime
) -> SavedView:
    """Save a query under a new name."""
    name = name.strip()
    check_texts(name, query)
    await accounts.lock_account(db, account.id)
    if await views.count(db, account.id) >= VIEWS:
        raise BadInputError(f"an account has at most {VIEWS} views: remove one first")
    view = SavedView(uuid4(), name, query.removeprefix("?"), by, now)
    await views.insert(db, account.id, view)
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "view.save", str(view.id), detail={"name": name})
    )
    return view


def check_texts(name: str, query: str) -> None:
    """Raise BadInputError if the name or the query of a view is too long or not printable."""
    if not 0 < len(name) <= VIEW_NAME_LENGTH or not name.isprintable():
        raise BadInputError(f"a view's name has 1 to {VIEW_NAME_LENGTH} printable characters")
    if len(query) > VIEW_QUERY_LENGTH or not query.isprintable():
        raise BadInputError(f"a view's query has at most {VIEW_QUERY_LENGTH:,} printable characters")


async def remove_view(
    db: Connection, account: Account, view_id: UUID, *, by: str, now: datetime
) -> SavedView:
    """Remove a view and return it; raise NotFoundError if there is none of this id."""
    if (view := await views.delete(db, account.id, view_id)) is None:
        raise NotFoundError("there is no such view")
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "view.remove", str(view.id), detail={"name": view.name})
    )
    return view
