"""Routes of `/api/v1/incidents`. The specification does not have them."""

from uuid import uuid4

from fastapi import APIRouter, Request, Response

from outcrop.api import parameters, shapes
from outcrop.api.context import ApiContext, api_context
from outcrop.api.describe import responses
from outcrop.api.incident_parameters import (
    INCIDENT_ID,
    AssigneeParameters,
    CommentListParameters,
    CommentParameters,
    IncidentParameters,
    incident_id,
    no_such_member,
)
from outcrop.api.parameters import NoteParameters, described
from outcrop.domain.finding import TriageAction, TriageResult
from outcrop.domain.incident import Comment, Incident, public_incident
from outcrop.limits import INCIDENT_SECONDS
from outcrop.services.findings import incidents

router = APIRouter(prefix="/incidents", tags=["incidents"])
_single = responses(shapes.SingleShape[shapes.IncidentShape], lookup=True)
_mutation = responses(shapes.SingleShape[shapes.IncidentMutationData], lookup=True, mutation=True)
_with_id = {"parameters": [INCIDENT_ID]} | shapes.EXTENSION
_with_note = {"parameters": [INCIDENT_ID, *described(NoteParameters)]} | shapes.EXTENSION


@router.get(
    "",
    response_model=None,
    responses=responses(shapes.ListShape[shapes.IncidentShape]),
    openapi_extra={"parameters": described(IncidentParameters)} | shapes.EXTENSION,
)
async def list_incidents(request: Request) -> Response:
    """List incidents, with filters and pagination."""
    context = api_context(request)
    query = parameters.read(IncidentParameters, request.scope["query_string"]).query()
    page = await incidents.list_incidents(context.db, context.caller.account_id, query, now=context.now)
    return shapes.page_response(page, lambda incident: public_incident(incident, context.now))


@router.get("/{incident_id}", response_model=None, responses=_single, openapi_extra=_with_id)
async def get_incident(request: Request) -> Response:
    """Read one incident."""
    context = api_context(request)
    id_ = incident_id(request.path_params["incident_id"])
    return _respond(context, await incidents.get_incident(context.db, context.caller.account_id, id_))


@router.post("/{incident_id}/resolve", response_model=None, responses=_mutation, openapi_extra=_with_note)
async def resolve_incident(request: Request) -> Response:
    """Mark a credential as rotated or removed: resolve all its places."""
    return await _triage(request, TriageAction.RESOLVE)


@router.post("/{incident_id}/restrict", response_model=None, responses=_mutation, openapi_extra=_with_note)
async def restrict_incident(request: Request) -> Response:
    """Close all places of an incident whose exposure is acknowledged."""
    return await _triage(request, TriageAction.RESTRICT)


@router.post("/{incident_id}/suppress", response_model=None, responses=_mutation, openapi_extra=_with_note)
async def suppress_incident(request: Request) -> Response:
    """Hide all places of an incident from the active view; `note` is ignored."""
    return await _triage(request, TriageAction.SUPPRESS)


@router.post(
    "/{incident_id}/false_positive", response_model=None, responses=_mutation, openapi_extra=_with_note
)
async def mark_incident_false_positive(request: Request) -> Response:
    """Mark all places of an incident as not a credential."""
    return await _triage(request, TriageAction.FALSE_POSITIVE)


@router.post(
    "/{incident_id}/assign",
    response_model=None,
    responses=responses(shapes.SingleShape[shapes.IncidentShape], lookup=True, mutation=True),
    openapi_extra={"parameters": [INCIDENT_ID, *described(AssigneeParameters)]} | shapes.EXTENSION,
)
async def assign_incident(request: Request) -> Response:
    """Assign an incident to a member of the account, or to nobody."""
    context = api_context(request)
    id_ = incident_id(request.path_params["incident_id"])
    address = parameters.read(AssigneeParameters, request.scope["query_string"]).assignee
    account_id, by = context.caller.account_id, context.caller.email
    assignee = None
    if address and (assignee := await incidents.find_assignee(context.db, account_id, address)) is None:
        raise no_such_member()
    async with context.db.transaction():
        incident = await incidents.assign_incident(
            context.db, account_id, id_, assignee, by=by, now=context.now
        )
    return _respond(context, incident)


@router.get(
    "/{incident_id}/comments",
    response_model=None,
    responses=responses(shapes.ListShape[shapes.CommentShape], lookup=True),
    openapi_extra={"parameters": [INCIDENT_ID, *described(CommentListParameters)]} | shapes.EXTENSION,
)
async def list_comments(request: Request) -> Response:
    """List the comments on an incident, newest first."""
    context = api_context(request)
    id_ = incident_id(request.path_params["incident_id"])
    read = parameters.read(CommentListParameters, request.scope["query_string"])
    page = await incidents.list_comments(
        context.db, context.caller.account_id, id_, page=read.page, per_page=read.per_page
    )
    return shapes.page_response(page, _comment_fields)


@router.post(
    "/{incident_id}/comments",
    response_model=None,
    responses=responses(shapes.SingleShape[shapes.CommentShape], lookup=True),
    openapi_extra={"parameters": [INCIDENT_ID, *described(CommentParameters)]} | shapes.EXTENSION,
)
async def add_comment(request: Request) -> Response:
    """Comment on an incident."""
    context = api_context(request)
    id_ = incident_id(request.path_params["incident_id"])
    raw = parameters.read(CommentParameters, request.scope["query_string"]).text
    account_id, by = context.caller.account_id, context.caller.email
    text = await context.notes.clean(context.db, context.keys, account_id, raw)
    async with context.db.transaction():
        comment = await incidents.add_comment(
            *(context.db, context.keys, account_id, id_, text), comment_id=uuid4(), by=by, now=context.now
        )
    return shapes.single_response(_comment_fields(comment))


async def _triage(request: Request, action: TriageAction) -> Response:
    """Apply an action to all places of an incident, with an optional note."""
    context = api_context(request)
    id_ = incident_id(request.path_params["incident_id"])
    account_id, by = context.caller.account_id, context.caller.email
    raw_note = parameters.read(NoteParameters, request.scope["query_string"]).note
    note = None
    if action is not TriageAction.SUPPRESS:
        note = await context.notes.clean_note(context.db, context.keys, account_id, raw_note)
    request.state.deadline.extend(INCIDENT_SECONDS)
    async with context.db.transaction():
        done = await incidents.triage_incident(
            context.db, context.keys, account_id, id_, action, note=note, by=by, now=context.now
        )
    return shapes.single_response(
        {
            "id": str(done.incident.id),
            "status": done.incident.status,
            "changed": done.results[TriageResult.CHANGED],
            "unchanged": done.results[TriageResult.UNCHANGED],
            "refused": done.results[TriageResult.REFUSED],
        }
    )


def _respond(context: ApiContext, incident: Incident) -> Response:
    """Return an incident in the single envelope."""
    return shapes.single_response(public_incident(incident, context.now))


def _comment_fields(comment: Comment) -> dict[str, object]:
    """Return a comment as the API shows it."""
    return {"id": comment.id, "at": comment.at, "by": comment.by, "text": comment.text}
