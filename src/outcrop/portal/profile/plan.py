"""The account's plan: what it includes. Changing it is the operator's."""

from starlette.responses import Response

from outcrop.domain.account import REQUESTS_PER_MINUTE, Plan
from outcrop.portal.request import Visit, get


async def show_plan(visit: Visit) -> Response:
    return visit.render("plan.html", plans=list(Plan), limits=REQUESTS_PER_MINUTE)


ROUTES = [get("/profile/plan", show_plan)]
