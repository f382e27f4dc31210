"""Routes of `/api/v1/scans`."""

from fastapi import APIRouter, Request, Response

from outcrop.api import parameters, shapes
from outcrop.api.context import api_context
from outcrop.api.describe import responses
from outcrop.api.parameters import SCAN_ID, ScanParameters, described
from outcrop.domain.scan import public_fields
from outcrop.services import scans

router = APIRouter(prefix="/scans", tags=["scans"])


@router.get(
    "",
    response_model=None,
    responses=responses(shapes.ListShape[shapes.ScanRunShape]),
    openapi_extra={"parameters": described(ScanParameters)},
)
async def list_scans(request: Request) -> Response:
    """List scan runs, newest first."""
    context = api_context(request)
    query = parameters.read(ScanParameters, request.scope["query_string"])
    page = await scans.list_scans(
        context.db, context.caller.account_id, type_=query.type, page=query.page, per_page=query.limit
    )
    return shapes.page_response(page, public_fields)


@router.get(
    "/{scan_id}",
    response_model=None,
    responses=responses(shapes.SingleShape[shapes.ScanRunShape], parameters=False, lookup=True),
    openapi_extra={"parameters": [SCAN_ID]},
)
async def get_scan(request: Request) -> Response:
    """Read one scan run."""
    context = api_context(request)
    return shapes.single_response(
        public_fields(
            await scans.get_scan(context.db, context.caller.account_id, request.path_params["scan_id"])
        )
    )
