"""Read, triage and assign incidents, and comment on them.

Closing an incident is the triage of each of its findings, in one transaction.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from outcrop.domain.errors import NotFoundError
from outcrop.domain.finding import Finding, TriageAction, TriageResult
from outcrop.domain.incident import Comment, Incident, IncidentQuery
from outcrop.domain.incident.mentions import find_mentions
from outcrop.domain.paging import Page
from outcrop.domain.secret import MaskedText, is_password
from outcrop.limits import COMMENT_LENGTH
from outcrop.services import findings
from outcrop.store import audit
from outcrop.store.db import Connection, limit_lock_wait
from outcrop.store.findings import verdicts
from outcrop.store.incidents import comments, listing, mentions, pending, table
from outcrop.store.keyring import DamagedValueError, Keyring
from outcrop.store.people import accounts

PLACES = 100  # places on one page of an incident
_AUTHORS = 20
_ACTIVE_PLACES, _LINES = 500, 200  # of the activity: the places that changed last, and audit lines


@dataclass(frozen=True, slots=True)
class IncidentTriage:
    """An incident after a triage of its places, and the number of places by result."""

    incident: Incident
    results: Counter[TriageResult]


@dataclass(frozen=True, slots=True)
class IncidentPlaces:
    """One page of an incident's places, and what they have in common."""

    places: list[Finding]  # open ones first, then by score
    oldest: Finding | None  # the place with the oldest commit
    authors: list[str]  # of the commits, the earliest first


async def list_incidents(
    db: Connection, account_id: int, query: IncidentQuery, *, now: datetime
) -> Page[Incident]:
    """Return one page of the incidents that match a query. Not for use in a transaction."""
    await pending.catch_up(db, account_id)
    return await listing.select_page(db, account_id, query, now=now)


async def get_incident(db: Connection, account_id: int, incident_id: UUID) -> Incident:
    """Return an incident; raise NotFoundError if the account has none with this id."""
    if (incident := await table.select(db, account_id, incident_id)) is None:
        raise NotFoundError("no such incident")
    return incident


async def triage_incident(
    db: Connection,
    keys: Keyring,
    account_id: int,
    incident_id: UUID,
    action: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
    triage_id: UUID | None = None,
) -> IncidentTriage:
    """Apply an action to all places of an incident. A place that refuses does not undo the others.

    `triage_id` is that of `findings.triage`.
    """
    ids = await table.select_place_ids(db, account_id, incident_id)
    results = await findings.triage(
        db, keys, account_id, ids, action, note=note, by=by, now=now, triage_id=triage_id
    )
    counted = Counter(result for _, result in results)
    return IncidentTriage(await get_incident(db, account_id, incident_id), counted)


async def find_assignee(db: Connection, account_id: int, address: str) -> str | None:
    """Return a member's address as it is stored; None if the account has no member with this address."""
    return await accounts.select_address(db, account_id, address)


async def assign_incident(
    db: Connection, account_id: int, incident_id: UUID, assignee: str | None, *, by: str, now: datetime
) -> Incident:
    """Assign an incident to a member, or to nobody. `assignee` comes from `find_assignee`."""
    async with limit_lock_wait(db):
        await pending.lock_incidents(db, account_id)
        before = await get_incident(db, account_id, incident_id)
        if before.assignee == assignee:
            return before
        await pending.refresh(db, account_id, [incident_id])
        await table.lock_places(db, account_id, [incident_id])
        await table.assign(db, account_id, [incident_id], assignee)
    detail = {"from": before.assignee, "to": assignee}
    line = audit.AuditLine(now, by, "incident.assign", str(incident_id), detail=detail)
    await audit.append(db, account_id, line)
    return await get_incident(db, account_id, incident_id)


async def list_comments(
    db: Connection, account_id: int, incident_id: UUID, *, page: int, per_page: int
) -> Page[Comment]:
    """Return one page of the comments on an incident, newest first."""
    if not await table.exists(db, account_id, incident_id):
        raise NotFoundError("no such incident")
    offset = (page - 1) * per_page
    total, found = await comments.select_page(db, account_id, incident_id, offset=offset, limit=per_page)
    return Page(found, total, page, per_page)


async def add_comment(
    db: Connection,
    keys: Keyring,
    account_id: int,
    incident_id: UUID,
    text: MaskedText,
    *,
    comment_id: UUID,
    by: str,
    now: datetime,
) -> Comment:
    """Append a comment to an incident. Its credential is masked in the text.

    The members that it mentions see it on their overview.
    """
    if (place_ids := await table.select_place_ids(db, account_id, incident_id)) == []:
        raise NotFoundError("no such incident")
    masked = await _mask_credential(db, keys, account_id, place_ids[0], text)
    comment = Comment(comment_id, now, by, masked[:COMMENT_LENGTH])
    await comments.insert(db, account_id, incident_id, comment)
    mentioned = await mentions.insert(db, account_id, comment_id, find_mentions(comment.text), by=by)
    line = audit.AuditLine(now, by, "incident.comment", str(incident_id), detail={"comment": str(comment_id)})
    await audit.append(db, account_id, line)
    return replace(comment, mentions=tuple(mentioned))


async def _mask_credential(
    db: Connection, keys: Keyring, account_id: int, finding_id: UUID, text: str
) -> str:
    """Return the text without the credential of a finding, if that is stored."""
    stored = await verdicts.select_credential(db, account_id, finding_id)
    if stored is None:
        return text
    with suppress(DamagedValueError):
        secret = keys.open(stored.box, account_id, finding_id, mask_all=is_password(stored.secret_type))
        return secret.masked_within(text)
    return text


async def get_places(db: Connection, account_id: int, incident_id: UUID, *, page: int) -> IncidentPlaces:
    """Return one page of an incident's places."""
    offset = (page - 1) * PLACES
    places = await table.select_places(db, account_id, incident_id, offset=offset, limit=PLACES)
    oldest = await table.select_oldest_place(db, account_id, incident_id)
    authors = await table.select_authors(db, account_id, incident_id, _AUTHORS)
    return IncidentPlaces(places, oldest, authors)


async def list_activity(db: Connection, account_id: int, incident_id: UUID) -> list[audit.AuditLine]:
    """Return the newest audit lines about an incident and its places, newest first."""
    ids = await table.select_recent_place_ids(db, account_id, incident_id, _ACTIVE_PLACES)
    targets = [str(id_) for id_ in (incident_id, *ids)]
    return await audit.select_for_targets(db, account_id, targets, limit=_LINES)
