"""Scan runs: their history, one run while it goes on, what it could not look at."""

from starlette.responses import Response

from outcrop.domain.scan import ScanType
from outcrop.portal.queries import whole_number
from outcrop.portal.request import Visit, get
from outcrop.services import scans, targets

_PER_PAGE = 25


async def show_scans(visit: Visit) -> Response:
    given = visit.request.query_params
    type_ = next((kind for kind in ScanType if kind == given.get("type")), None)
    page = whole_number(given.get("page", "")) or 1
    runs = await scans.list_scans(visit.db, visit.account_id, type_=type_, page=page, per_page=_PER_PAGE)
    template = "scans_list.html" if visit.request.headers.get("x-part") == "list" else "scans.html"
    there = await targets.list_targets(visit.db, visit.signed.account)
    return visit.render(template, page=runs, type=type_, targets=there)


async def show_scan(visit: Visit) -> Response:
    run = await scans.get_scan(visit.db, visit.account_id, visit.path("id"))
    template = "scan_progress.html" if visit.request.headers.get("x-part") == "list" else "scan.html"
    return visit.render(template, run=run)


ROUTES = [get("/scans", show_scans), get("/scans/{id}", show_scan)]
