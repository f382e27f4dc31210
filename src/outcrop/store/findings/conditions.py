"""Translate the filters of a FindingQuery into SQL conditions."""

from collections.abc import Iterator
from typing import Any

from outcrop.domain.paging import FindingQuery
from outcrop.store.findings.attributes import chosen_attributes
from outcrop.store.where import WhereClause


def build_where(account_id: int, query: FindingQuery, facets: list[int] | None) -> WhereClause:
    """Return conditions for facets, score and first-seen range.

    The tables `findings`, `finding_search` and `finding_services` all have these columns. `service` and
    search terms are not included, nor are the filters of `add_finding_conditions`.
    """
    where = WhereClause(account_id)
    if facets is not None:
        where.add("facet = ANY(%s)", facets)
    if query.lowest_score:
        where.add("composite_score >= %s", query.lowest_score)
    if query.score_below is not None:
        where.add("composite_score < %s", query.score_below)
    if query.seen_from is not None:
        where.add("first_seen_at >= %s", query.seen_from)
    if query.seen_before is not None:
        where.add("first_seen_at < %s", query.seen_before)
    return where


def has_finding_conditions(query: FindingQuery) -> bool:
    """Whether the query filters by a column that only the table `findings` has."""
    if query.updated_since is not None or query.incident_id is not None:
        return True
    return next(chosen_attributes(query), None) is not None


def add_finding_conditions(where: WhereClause, query: FindingQuery) -> None:
    """Add the conditions for columns that only the table `findings` has."""
    for attribute, value in chosen_attributes(query):
        if isinstance(value, list) and len(value) == 1:  # with `ANY` no index has the order of the score
            where.add(f"{attribute.column} = %s", value[0])
        else:
            where.add(f"{attribute.column} = {attribute.value}", value)
    if query.incident_id is not None:
        where.add("incident_id = %s", query.incident_id)
    if query.updated_since is not None:
        where.add("updated_at >= %s", query.updated_since)


def row_conditions(query: FindingQuery) -> Iterator[tuple[str, list[Any]]]:
    """Yield conditions for search terms and `service` on a row `f` of findings, each with its values.

    Each condition looks up one finding, so they suit a statement that reads few findings.
    """
    same_finding = "s.account_id = f.account_id AND s.id = f.id"
    for number, term in enumerate(query.terms):
        in_text = f"EXISTS (SELECT FROM finding_search s WHERE {same_finding} AND s.text LIKE %s)"
        if types := query.types_of_term(number):
            yield f"({in_text} OR f.pattern_secret_type = ANY(%s))", [like_pattern(term), types]
        else:
            yield in_text, [like_pattern(term)]
    if query.service is not None:
        yield (
            f"EXISTS (SELECT FROM finding_services s WHERE {same_finding} AND s.service = %s)",
            [query.service],
        )


def like_pattern(term: str) -> str:
    """Return the LIKE pattern of case-folded texts that contain the term; its wildcards are escaped."""
    escaped = term.casefold().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
