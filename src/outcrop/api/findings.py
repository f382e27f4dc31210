"""Routes of `/api/v1/findings`."""

from fastapi import APIRouter, Request, Response

from outcrop.api import parameters, shapes
from outcrop.api.context import api_context
from outcrop.api.describe import responses
from outcrop.api.parameters import FINDING_ID, FindingParameters, NoteParameters, described
from outcrop.domain.finding import Action, public_fields
from outcrop.services import findings

router = APIRouter(prefix="/findings", tags=["findings"])
_mutation = responses(shapes.SingleShape[shapes.MutationData], lookup=True, mutation=True)
_transition = responses(shapes.SingleShape[shapes.MutationData], lookup=True, mutation=True, transition=True)
_with_note = {"parameters": [FINDING_ID, *described(NoteParameters)]}


@router.get(
    "",
    response_model=None,
    responses=responses(shapes.ListShape[shapes.FindingShape]),
    openapi_extra={"parameters": described(FindingParameters)},
)
async def list_findings(request: Request) -> Response:
    """List findings, with filters and pagination."""
    context = api_context(request)
    query = parameters.read(FindingParameters, request.scope["query_string"]).query()
    page = await findings.list_findings(context.db, context.caller.account_id, query)
    return shapes.page_response(page, public_fields)


@router.get(
    "/{finding_id}",
    response_model=None,
    responses=responses(shapes.SingleShape[shapes.FindingShape], lookup=True),
    openapi_extra={"parameters": [FINDING_ID]},
)
async def get_finding(request: Request) -> Response:
    """Read one finding."""
    context = api_context(request)
    finding_id = parameters.finding_id(request.path_params["finding_id"])
    return shapes.single_response(
        public_fields(await findings.get_finding(context.db, context.caller.account_id, finding_id))
    )


@router.get(
    "/{finding_id}/score",
    response_model=None,
    responses=responses(shapes.SingleShape[shapes.ScoreShape], lookup=True),
    openapi_extra={"parameters": [FINDING_ID]} | shapes.EXTENSION,
)
async def get_score(request: Request) -> Response:
    """Explain the score of a finding, part by part."""
    context = api_context(request)
    finding_id = parameters.finding_id(request.path_params["finding_id"])
    score = await findings.explain_score(context.db, context.caller.account_id, finding_id)
    return shapes.single_response(shapes.score_fields(score))


@router.post(
    "/{finding_id}/suppress",
    response_model=None,
    responses=_mutation,
    openapi_extra={"parameters": [FINDING_ID]},
)
async def suppress_finding(request: Request) -> Response:
    """Hide a finding from the active view without changing its status."""
    context = api_context(request)
    finding_id = parameters.finding_id(request.path_params["finding_id"])
    async with context.db.transaction():
        finding = await findings.suppress_finding(
            context.db, context.caller.account_id, finding_id, by=context.caller.email, now=context.now
        )
    return shapes.mutation_response(finding)


@router.post("/{finding_id}/resolve", response_model=None, responses=_transition, openapi_extra=_with_note)
async def resolve_finding(request: Request) -> Response:
    """Mark the credential as rotated or removed."""
    return await _close(request, Action.RESOLVE)


@router.post("/{finding_id}/restrict", response_model=None, responses=_transition, openapi_extra=_with_note)
async def restrict_finding(request: Request) -> Response:
    """Close a finding whose exposure is acknowledged."""
    return await _close(request, Action.RESTRICT)


@router.post(
    "/{finding_id}/false_positive",
    response_model=None,
    responses=_mutation,
    openapi_extra=_with_note | shapes.EXTENSION,
)
async def mark_false_positive(request: Request) -> Response:
    """Mark a finding as not a credential."""
    return await _close(request, Action.FALSE_POSITIVE)


async def _close(request: Request, action: Action) -> Response:
    """Apply a closing action with an optional note."""
    context = api_context(request)
    finding_id = parameters.finding_id(request.path_params["finding_id"])
    account_id, by = context.caller.account_id, context.caller.email
    raw_note = parameters.read(NoteParameters, request.scope["query_string"]).note
    note = await context.notes.clean_note(context.db, context.keys, account_id, raw_note)
    async with context.db.transaction():
        finding = await findings.close_finding(
            context.db, context.keys, account_id, finding_id, action, note=note, by=by, now=context.now
        )
    return shapes.mutation_response(finding)
