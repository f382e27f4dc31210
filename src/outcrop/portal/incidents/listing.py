"""The list of incidents: filters, order, pages."""

from starlette.responses import Response

from outcrop.domain.incident import IncidentStatus
from outcrop.portal.incidents.queries import ALL, CLOSED_VALID, read_incident_view
from outcrop.portal.list_filters import suggest_types
from outcrop.portal.request import PortalRequest, get
from outcrop.services import accounts
from outcrop.services.findings import incidents

TABS = [
    (IncidentStatus.OPEN, "Open"),
    (IncidentStatus.CLOSED, "Closed"),
    (CLOSED_VALID, "Closed, still valid"),
    (ALL, "All"),
]


async def show_incidents(request: PortalRequest) -> Response:
    view = read_incident_view(request.http.query_params, request.email, request.zone)
    page = await incidents.list_incidents(request.db, request.account_id, view.query, now=request.now)
    # While the user types, the script of the page requests the list alone.
    if request.http.headers.get("x-part") == "list":
        return request.render("incidents_list.html", view=view, page=page)
    members = [member.email for member in await accounts.list_members(request.db, request.signed.account)]
    types = await suggest_types(request.db, request.account_id)
    return request.render("incidents.html", view=view, page=page, tabs=TABS, members=members, types=types)


ROUTES = [get("/incidents", show_incidents)]
