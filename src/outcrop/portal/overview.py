"""The overview page: findings that need attention, and counts."""

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.target import TargetState
from outcrop.portal.request import PortalRequest, get
from outcrop.services import overview, targets, webhooks

_WORST_FIRST = list(TargetState)


async def show_overview(request: PortalRequest) -> Response:
    figures = await overview.get_overview(request.db, request.account_id, now=request.now)
    webhook = (
        await webhooks.get_webhook(request.db, request.keys, request.account_id)
        if request.may(Permission.WEBHOOK)
        else None
    )
    health = await targets.list_health(request.db, request.account_id)
    states = [(target, target.state(request.now)) for target in health]
    return request.render(
        "overview.html",
        found=figures,
        targets=sorted(states, key=lambda pair: _WORST_FIRST.index(pair[1])),
        unknown=sum(target.complete is None for target in health),
        days=[(day.day, day.valid, day.other) for day in figures.days],
        webhook=webhook,
    )


ROUTES = [get("/", show_overview)]
