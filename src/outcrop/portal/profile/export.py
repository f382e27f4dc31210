"""Findings as a file: everything, or the view that a person is looking at."""

from starlette.responses import Response, StreamingResponse

from outcrop import __version__
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.portal.queries import ALL, NAMES, read_view
from outcrop.portal.request import Visit, get, now
from outcrop.services.exchange.exporter import ExportFormat, export_findings

_TYPES = {
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.SARIF: "application/sarif+json",
}


async def show_export(visit: Visit) -> Response:
    return visit.render("export.html")


async def export(visit: Visit) -> Response:
    """Stream the findings; the connection of the page is given back before, each batch takes its own."""
    format_ = next((one for one in ExportFormat if one == visit.path("format")), None)
    if format_ is None:
        raise NotFoundError("there is nothing at this address")
    given = dict(visit.request.query_params)
    view = read_view(given or {"status": ALL})
    if unread := [*view.problems, *(name.replace("_", " ") for name in NAMES if "\0" in given.get(name, ""))]:
        raise BadInputError(
            f"nothing is exported, since this part of the view cannot be read: {', '.join(unread)}"
        )
    name = f"outcrop-findings-{visit.signed.account.slug}-{now():%Y%m%d}.{format_}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    body = export_findings(
        visit.pool,
        visit.signed.account,
        view.query,
        format_,
        version=__version__,
        by=visit.email,
        now=now(),
    )
    return StreamingResponse(body, media_type=_TYPES[format_], headers=headers)


ROUTES = [get("/profile/export", show_export), get("/export/findings.{format}", export)]
