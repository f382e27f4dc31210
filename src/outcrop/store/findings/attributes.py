"""The attributes that lists of findings filter by: their columns, and the rollups that count their values.

Each has an index with the matches of one value in the order of the score.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outcrop.domain.paging import FindingQuery


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a finding, by which lists can be filtered."""

    name: str  # of the filter in FindingQuery
    column: str  # an SQL expression
    kind: int  # of the cells that count the findings by value and facet
    value: str = "%s"  # the SQL expression that the column is compared with

    def parameter(self, value: Any) -> Any:
        """Return the value of a filter as the parameter of a statement."""
        return list(value) if isinstance(value, tuple) else str(value)


SECRET_TYPE = Attribute("secret_type", "pattern_secret_type", 11)
REPO = Attribute("repo", "left(lower(repo_full_name), 512)", 14, "left(lower(%s), 512)")
AUTHOR = Attribute("author", "author", 15)
ATTRIBUTES = (
    SECRET_TYPE,
    Attribute("visibility", "source_visibility", 12),
    Attribute("rule", "rule", 13),
    REPO,
    AUTHOR,
    Attribute("scan", "new_scan_id", 16),
    Attribute("context", "context", 19),
    Attribute("secret_types", "pattern_secret_type", 11, "ANY(%s)"),
    Attribute("sources", "source", 30, "ANY(%s)"),
    Attribute("assignee", "lower(coalesce(assignee, ''))", 20, "lower(%s)"),
)
# The columns of findings that these filters and `updated_since` need.
COLUMNS = """pattern_secret_type, source_visibility, rule, repo_full_name, author, new_scan_id, updated_at,
             last_seen_at, context, source, assignee, incident_id"""


def chosen_attributes(query: FindingQuery) -> Iterator[tuple[Attribute, Any]]:
    """Yield each attribute that the query filters by, with the value as a parameter of a statement."""
    for attribute in ATTRIBUTES:
        if (value := getattr(query, attribute.name)) is not None:
            yield attribute, attribute.parameter(value)
