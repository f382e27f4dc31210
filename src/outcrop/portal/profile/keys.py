"""API keys: list, create, revoke."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from starlette.responses import Response

from outcrop.domain.account import REQUESTS_PER_MINUTE, Permission
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.limits import NAME_LENGTH
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import keys
from outcrop.services.keys import NewKey


async def show_keys(request: PortalRequest) -> Response:
    return await _page(request)


async def create_key(request: PortalRequest) -> Response:
    """Create a key and show it in this response. It is not stored and cannot be shown again."""
    name = request.form.get("name")
    try:
        keys.check_name(name)
        new = await keys.create_key(
            request.db,
            request.signed.account,
            name=(await request.clean(name))[:NAME_LENGTH],
            expires_at=_expiry(request.form.get("expires"), request.zone),
            by=request.email,
            member=request.email,
            now=request.now,
        )
    except BadInputError as error:
        return await _page(
            request,
            message=error.message,
            typed={field: request.form.get(field) for field in ("name", "expires")},
        )
    return await _page(request, new=new)


async def revoke_key(request: PortalRequest) -> Response:
    ids = {str(key.id) for key in await keys.list_keys(request.db, request.signed.account)}
    if request.path("id") not in ids:
        raise NotFoundError("there is no such key")
    await keys.revoke_key(request.db, request.path("id"), by=request.email, now=request.now)
    return request.redirect("/profile/keys", "The key is revoked. Requests with it are refused from now on.")


async def _page(
    request: PortalRequest,
    *,
    new: NewKey | None = None,
    message: str | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    account = request.signed.account
    return request.render(
        "keys.html",
        400 if message else 200,
        keys=await keys.list_keys(request.db, account),
        new=new,
        message=message,
        typed=typed or {},
        now=request.now,
        limit=REQUESTS_PER_MINUTE.get(account.plan),
        tomorrow=(request.now.astimezone(request.zone) + timedelta(days=1)).date().isoformat(),
    )


def _expiry(text: str, zone: tzinfo) -> datetime | None:
    """Parse the last day on which a key is valid; return the end of that day in a time zone."""
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), time(23, 59, 59), zone).astimezone(UTC)
    except (OverflowError, ValueError):
        raise BadInputError("the last day must be a date") from None


ROUTES = [
    get("/profile/keys", show_keys, Permission.KEYS),
    post("/profile/keys", create_key, Permission.KEYS),
    post("/profile/keys/{id}/revoke", revoke_key, Permission.KEYS),
]
