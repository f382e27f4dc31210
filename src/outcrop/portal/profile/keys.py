"""API keys: made, shown once, revoked."""

from datetime import UTC, date, datetime, time, timedelta

from starlette.responses import Response

from outcrop.domain.account import REQUESTS_PER_MINUTE, Permission
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import keys
from outcrop.services.keys import NewKey


async def show_keys(visit: Visit) -> Response:
    return await _page(visit)


async def create_key(visit: Visit) -> Response:
    """Make a key and show it in this very answer: it is stored nowhere and can be shown never again."""
    try:
        new = await keys.create_key(
            visit.db,
            visit.signed.account,
            name=await visit.clean(visit.form.get("name")),
            expires_at=_expiry(visit.form.get("expires")),
            by=visit.email,
            member=visit.email,
            now=now(),
        )
    except BadInputError as error:
        return await _page(
            visit, message=error.message, typed={name: visit.form.get(name) for name in ("name", "expires")}
        )
    return await _page(visit, new=new)


async def revoke_key(visit: Visit) -> Response:
    ids = {str(key.id) for key in await keys.list_keys(visit.db, visit.signed.account)}
    if visit.path("id") not in ids:
        raise NotFoundError("there is no such key")
    await keys.revoke_key(visit.db, visit.path("id"), by=visit.email, now=now())
    return visit.go("/profile/keys", "The key is revoked. Whoever used it is refused from now on.")


async def _page(
    visit: Visit,
    *,
    new: NewKey | None = None,
    message: str | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    account = visit.signed.account
    return visit.render(
        "keys.html",
        400 if message else 200,
        keys=await keys.list_keys(visit.db, account),
        new=new,
        message=message,
        typed=typed or {},
        now=now(),
        limit=REQUESTS_PER_MINUTE.get(account.plan),
        tomorrow=(now() + timedelta(days=1)).date().isoformat(),
    )


def _expiry(text: str) -> datetime | None:
    """Read the last day on which a key works."""
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), time(23, 59, 59), UTC)
    except ValueError:
        raise BadInputError("the last day is a date") from None


ROUTES = [
    get("/profile/keys", show_keys, Permission.KEYS),
    post("/profile/keys", create_key, Permission.KEYS),
    post("/profile/keys/{id}/revoke", revoke_key, Permission.KEYS),
]
