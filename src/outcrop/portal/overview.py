"""The first page: what needs attention now."""

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.portal.request import Visit, get, now
from outcrop.services import overview, webhooks


async def show_overview(visit: Visit) -> Response:
    found = await overview.get_overview(visit.db, visit.account_id, now=now())
    webhook = (
        await webhooks.get_webhook(visit.db, visit.account_id) if visit.may(Permission.WEBHOOK) else None
    )
    return visit.render(
        "overview.html",
        found=found,
        days=[(day.day, day.valid, day.other) for day in found.days],
        webhook=webhook,
    )


ROUTES = [get("/", show_overview)]
