"""The overview page: findings that need attention, and counts."""

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.portal.request import PortalRequest, get
from outcrop.services import overview, webhooks


async def show_overview(request: PortalRequest) -> Response:
    figures = await overview.get_overview(request.db, request.account_id, now=request.now)
    webhook = (
        await webhooks.get_webhook(request.db, request.keys, request.account_id)
        if request.may(Permission.WEBHOOK)
        else None
    )
    return request.render(
        "overview.html",
        found=figures,
        days=[(day.day, day.valid, day.other) for day in figures.days],
        webhook=webhook,
    )


ROUTES = [get("/", show_overview)]
