"""Routes of `/api/v2/imports`."""

from fastapi import APIRouter, Request, Response

from outcrop.api import parameters, shapes
from outcrop.api.describe import responses
from outcrop.api.parameters import described
from outcrop.api.v2.context import api_v2_context
from outcrop.api.v2.parameters import IMPORT_ID, ImportListParameters, import_id
from outcrop.api.v2.shapes import ImportShape, import_fields
from outcrop.services.exchange import report_imports

router = APIRouter(prefix="/imports", tags=["imports"])


@router.get(
    "",
    response_model=None,
    responses=responses(shapes.ListShape[ImportShape]),
    openapi_extra={"parameters": described(ImportListParameters)},
)
async def list_imports(request: Request) -> Response:
    """List the imports over the API, newest first."""
    context = api_v2_context(request)
    query = parameters.read(ImportListParameters, request.scope["query_string"])
    async with context.connect() as db:
        page = await report_imports.list_imports(
            db, context.caller.account_id, page=query.page, per_page=query.per_page
        )
    return shapes.page_response(page, import_fields)


@router.get(
    "/{import_id}",
    response_model=None,
    responses=responses(shapes.SingleShape[ImportShape], lookup=True),
    openapi_extra={"parameters": [IMPORT_ID]},
)
async def get_import(request: Request) -> Response:
    """Read one import."""
    context = api_v2_context(request)
    id_ = import_id(request.path_params["import_id"])
    async with context.connect() as db:
        report = await report_imports.get_import(db, context.caller.account_id, id_)
    return shapes.single_response(import_fields(report))
