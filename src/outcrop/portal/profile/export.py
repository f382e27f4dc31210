"""Download findings as a file: all, or those of the current view."""

from starlette.responses import Response, StreamingResponse

from outcrop import __version__
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.portal.list_filters import load_view
from outcrop.portal.queries import ALL, NAMES
from outcrop.portal.request import PortalRequest, get
from outcrop.services.exchange.exporter import ExportFormat, export_findings

_TYPES = {
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.SARIF: "application/sarif+json",
}


async def show_export(request: PortalRequest) -> Response:
    return request.render("export.html")


async def export(request: PortalRequest) -> Response:
    """Stream the findings. Each batch uses its own database connection."""
    format_ = next((format_ for format_ in ExportFormat if format_ == request.path("format")), None)
    if format_ is None:
        raise NotFoundError("there is no such format")
    parameters = dict(request.http.query_params)
    view = await load_view(request, parameters or {"status": ALL})
    if invalid := [
        *view.problems,
        *(name.replace("_", " ") for name in NAMES if "\0" in parameters.get(name, "")),
    ]:
        raise BadInputError(
            f"nothing was exported, because these parameters are invalid: {', '.join(invalid)}"
        )
    name = f"outcrop-findings-{request.signed.account.slug}-{request.now:%Y%m%d}.{format_}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    body = export_findings(
        request.connect,
        request.signed.account,
        view.query,
        format_,
        version=__version__,
        by=request.email,
        now=request.now,
    )
    return StreamingResponse(body, media_type=_TYPES[format_], headers=headers)


ROUTES = [get("/profile/export", show_export), get("/export/findings.{format}", export)]
