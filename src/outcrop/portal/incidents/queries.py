"""Parse the filters of the list of incidents from a query string. Invalid values are reported and ignored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo

from outcrop.domain.finding import Severity, Validation
from outcrop.domain.incident import IncidentOrder, IncidentQuery, IncidentStatus
from outcrop.domain.paging import OrderDir
from outcrop.portal.queries import (
    PER_PAGE,
    read_assignee,
    read_choice,
    read_day,
    read_score,
    read_terms,
    read_values,
    whole_number,
)

ALL, CLOSED_VALID = "all", "closed_valid"  # tabs beside the statuses
_NAMES = (
    "status",
    "validation",
    "severity",
    "secret_type",
    "service",
    "assignee",
    "overdue",
    "min_score",
    "date_from",
    "date_to",
    "q",
    "order_by",
    "order_dir",
    "page",
)


@dataclass(frozen=True, slots=True)
class IncidentView:
    """A view of the list: the query, the valid parameters without the page, and the invalid ones."""

    query: IncidentQuery
    values: dict[str, str]
    problems: tuple[str, ...]

    @property
    def tab(self) -> str:
        """Return the selected tab."""
        return self.values.get("status", IncidentStatus.OPEN)


def read_incident_view(parameters: Mapping[str, str], email: str, zone: tzinfo = UTC) -> IncidentView:
    """Parse a view of the member with this address; its days are those of `zone`."""
    values = read_values(parameters, _NAMES)
    problems: list[str] = []
    tab = values.get("status", IncidentStatus.OPEN)
    status = None
    if tab not in {ALL, CLOSED_VALID}:
        status = read_choice(values, "status", problems, IncidentStatus) or IncidentStatus.OPEN
    page = values.pop("page", "1")
    if not whole_number(page):
        problems.append(f"page “{page[:40]}”")
    query = IncidentQuery(
        status=status,
        closed_valid=True if tab == CLOSED_VALID else None,
        validation=read_choice(values, "validation", problems, Validation),
        severity=read_choice(values, "severity", problems, Severity),
        secret_type=values.get("secret_type"),
        service=values.get("service"),
        assignee=read_assignee(values, email),
        overdue=_overdue(values, problems),
        min_score=read_score(values, problems),
        seen_from=read_day(values, "date_from", problems, zone),
        seen_before=read_day(values, "date_to", problems, zone, following=True),
        terms=read_terms(values),
        page=whole_number(page) or 1,
        per_page=PER_PAGE,
        order_by=read_choice(values, "order_by", problems, IncidentOrder) or IncidentOrder.COMPOSITE_SCORE,
        order_dir=read_choice(values, "order_dir", problems, OrderDir) or OrderDir.DESC,
    )
    return IncidentView(query, values, tuple(problems))


def _overdue(values: dict[str, str], problems: list[str]) -> bool | None:
    """Return `overdue`, or report and remove it if it is neither `true` nor `false`."""
    if (text := values.get("overdue")) is None:
        return None
    if text in {"true", "false"}:
        return text == "true"
    problems.append(f"overdue “{values.pop('overdue')[:40]}”")
    return None
