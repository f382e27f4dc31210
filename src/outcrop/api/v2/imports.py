"""Routes of `/api/v2/imports`."""

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from outcrop.api import errors, parameters, shapes
from outcrop.api.describe import responses
from outcrop.api.parameters import described
from outcrop.api.v2.context import api_v2_context
from outcrop.api.v2.describe import REPORT_BODY, upload_responses
from outcrop.api.v2.parameters import (
    CONTENT_ENCODING,
    IDEMPOTENCY_KEY,
    IMPORT_ID,
    ImportListParameters,
    UploadParameters,
    idempotency_key,
    import_id,
    is_gzip,
)
from outcrop.api.v2.shapes import AcceptedImportShape, ImportShape, import_fields
from outcrop.api.v2.upload_body import UploadBody
from outcrop.limits import UPLOAD_BYTES_PER_SECOND, UPLOAD_SECONDS
from outcrop.services.exchange import report_imports
from outcrop.services.exchange.upload import ReportUpload, UploadContext, receive_report
from outcrop.services.exchange.upload_file import TooLargeError
from outcrop.store.imports import ImportStatus

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


@router.post(
    "",
    status_code=202,
    response_model=None,
    responses=upload_responses(shapes.SingleShape[AcceptedImportShape]),
    openapi_extra={
        "parameters": [*described(UploadParameters), IDEMPOTENCY_KEY, CONTENT_ENCODING],
        "requestBody": REPORT_BODY,
    },
)
async def create_import(request: Request) -> Response:
    """Import the report in the body: it is checked while it arrives, and merged by a job afterwards."""
    context, state = api_v2_context(request), request.state
    query = parameters.read(UploadParameters, request.scope["query_string"])
    upload = ReportUpload(
        query.format,
        query.repo,
        query.commit,
        events=query.events,
        idempotency_key=idempotency_key(request.scope["headers"]),
        is_gzip=is_gzip(request.scope["headers"]),
    )
    if (length := request.headers.get("content-length", "")).isdecimal() and (
        not upload.is_gzip and int(length) > state.uploads.max_bytes
    ):
        raise TooLargeError(state.uploads.max_bytes)
    context.deadline.stop()  # an upload has limits of its own
    body = UploadBody(
        request.receive,
        bytes_per_second=UPLOAD_BYTES_PER_SECOND,
        max_late=state.uploads.max_late,
        max_seconds=UPLOAD_SECONDS,
    )
    uploads = UploadContext(
        state.uploads.lanes,
        context.connect,
        context.keys,
        context.caller.account_id,
        by=context.caller.email,
        now=context.now,
        max_bytes=state.uploads.max_bytes,
    )
    try:
        import_id = await receive_report(uploads, upload, body)
    except ClientDisconnect:
        return errors.error(400, "bad_request", "the client has disconnected")  # nobody reads it
    return shapes.json_response({"data": {"id": str(import_id), "status": ImportStatus.QUEUED}}, 202)
