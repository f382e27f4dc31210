"""The account's plan. Only the operator can change it."""

from starlette.responses import Response

from outcrop.domain.account import REQUESTS_PER_MINUTE, Plan
from outcrop.portal.request import PortalRequest, get


async def show_plan(request: PortalRequest) -> Response:
    return request.render("plan.html", plans=list(Plan), limits=REQUESTS_PER_MINUTE)


ROUTES = [get("/profile/plan", show_plan)]
