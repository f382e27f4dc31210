"""Scan runs: the list, and the page of one run with its progress and coverage gaps."""

from starlette.responses import Response

from outcrop.domain.scan import ScanType
from outcrop.portal.queries import whole_number
from outcrop.portal.request import PortalRequest, get
from outcrop.services import scans, targets

_PER_PAGE = 25


async def show_scans(request: PortalRequest) -> Response:
    parameters = request.http.query_params
    type_ = next((kind for kind in ScanType if kind == parameters.get("type")), None)
    page = whole_number(parameters.get("page", "")) or 1
    runs = await scans.list_scans(request.db, request.account_id, type_=type_, page=page, per_page=_PER_PAGE)
    template = "scans_list.html" if request.http.headers.get("x-part") == "list" else "scans.html"
    all_targets = await targets.list_targets(request.db, request.keys, request.signed.account)
    return request.render(template, page=runs, type=type_, targets=all_targets)


async def show_scan(request: PortalRequest) -> Response:
    run = await scans.get_scan(request.db, request.account_id, request.path("id"))
    template = "scan_progress.html" if request.http.headers.get("x-part") == "list" else "scan.html"
    target = await targets.find_target_of_run(request.db, request.keys, request.account_id, run)
    return request.render(template, run=run, target=target)


ROUTES = [get("/scans", show_scans), get("/scans/{id}", show_scan)]
