"""Translate the filters of an IncidentQuery into facets and SQL conditions."""

from datetime import datetime
from itertools import product
from typing import Any

from outcrop.domain.finding import Validation
from outcrop.domain.incident import IncidentQuery, IncidentStatus
from outcrop.store.findings.attributes import Attribute
from outcrop.store.findings.conditions import like_pattern
from outcrop.store.where import WhereClause

# As the kinds 28 and 29 of cells count them (migration 0027).
TYPE = Attribute("secret_type", "pattern_secret_type", 28)
ASSIGNEE = Attribute("assignee", "lower(coalesce(assignee, ''))", 29, "lower(%s)")
_CLOSED = 5  # facets from here on are those of closed incidents
_VALIDATIONS = tuple(Validation)


def list_matching_facets(query: IncidentQuery) -> list[int] | None:
    """Return every facet that the query's filters accept; None if they accept all facets."""
    if query.status is None and query.validation is None and query.closed_valid is None:
        return None
    found = []
    for is_closed, validation in product((False, True), _VALIDATIONS):
        status = IncidentStatus.CLOSED if is_closed else IncidentStatus.OPEN
        closed_valid = is_closed and validation is Validation.VALID
        if (
            query.status in {None, status}
            and query.validation in {None, validation}
            and query.closed_valid in {None, closed_valid}
        ):
            found.append(_CLOSED * is_closed + _VALIDATIONS.index(validation))
    return found


def build_where(
    account_id: int, query: IncidentQuery, facets: list[int] | None, now: datetime
) -> WhereClause:
    """Return the conditions of all filters on rows of `incidents`."""
    where = WhereClause(account_id)
    filters: tuple[tuple[str, Any], ...] = (
        ("facet = ANY(%s)", facets),
        ("composite_score >= %s", query.lowest_score or None),
        ("composite_score < %s", query.score_below),
        ("first_seen_at >= %s", query.seen_from),
        ("first_seen_at < %s", query.seen_before),
        (f"{TYPE.column} = {TYPE.value}", query.secret_type),
        (f"{ASSIGNEE.column} = {ASSIGNEE.value}", query.assignee),
        ("validation_detail -> 'enabled_services' ? %s", query.service),
        (f"due_at < %s AND facet < {_CLOSED}", now if query.overdue is True else None),
        (
            f"(due_at IS NULL OR due_at >= %s OR facet >= {_CLOSED})",
            now if query.overdue is False else None,
        ),
    )
    for condition, value in filters:
        if value is not None:
            where.add(condition, value)
    if query.terms:
        texts = " AND ".join("s.text LIKE %s" for _ in query.terms)
        where.add(
            f"""id IN (SELECT f.incident_id FROM finding_search s JOIN findings f USING (account_id, id)
                       WHERE account_id = %s AND {texts})""",
            account_id,
            *map(like_pattern, query.terms),
        )
    return where
