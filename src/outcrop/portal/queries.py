"""Parse the filters of the list of findings from a query string. Invalid values are reported and ignored."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from outcrop.domain.finding import (
    FindingContext,
    Severity,
    SourceType,
    Status,
    Validation,
    Visibility,
)
from outcrop.domain.ids import parse_id
from outcrop.domain.incident import UNASSIGNED
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir
from outcrop.limits import QUERY_LENGTH, QUERY_TERMS, VIEW_QUERY_LENGTH

E = TypeVar("E", bound=StrEnum)

PER_PAGE = 50
NAMES = (
    "status",
    "validation",
    "source_type",
    "severity",
    "secret_type",
    "issuer",
    "repo",
    "target",
    "visibility",
    "context",
    "author",
    "assignee",
    "scan",
    "service",
    "min_score",
    "date_from",
    "date_to",
    "q",
    "order_by",
    "order_dir",
    "page",
)
ALL, SUPPRESSED = "all", "suppressed"  # tabs beside the statuses; the first tab is the active view
ME = "me"  # the value of the filter by assignee for the signed-in member


@dataclass(frozen=True, slots=True)
class ListView:
    """A view of the list: the query, the valid parameters without the page, and the invalid ones."""

    query: FindingQuery
    values: dict[str, str]
    problems: tuple[str, ...] = ()
    target: UUID | None = None  # of the sources of this target

    @property
    def issuer(self) -> str | None:
        """Return the issuer of the filter."""
        return self.values.get("issuer")

    @property
    def tab(self) -> str:
        """Return the selected tab."""
        return self.values.get("status", Status.ACTIVE)


def read_view(parameters: Mapping[str, str], email: str, zone: tzinfo = UTC) -> ListView:
    """Parse a view of the member with this address; its days are those of `zone`.

    An invalid value is reported and ignored, so that an old address still works.
    """
    values = read_values(parameters, NAMES)
    problems: list[str] = []

    def choice(kind: type[E], name: str) -> E | None:
        return read_choice(values, name, problems, kind)

    def id_(name: str) -> UUID | None:
        """Return a parameter as a UUID; report and remove another text."""
        if (text := values.get(name)) is None or (found := parse_id(text)) is not None:
            return None if text is None else found
        problems.append(f"{name} “{values.pop(name)[:40]}”")
        return None

    tab = values.get("status", Status.ACTIVE)
    status = None if tab in {ALL, SUPPRESSED} else (choice(Status, "status") or Status.ACTIVE)
    page = values.pop("page", "1")
    if not whole_number(page):
        problems.append(f"page “{page[:40]}”")
    query = FindingQuery(
        status=status,
        suppressed=True if tab == SUPPRESSED else None,
        source_type=choice(SourceType, "source_type"),
        validation=choice(Validation, "validation"),
        severity=choice(Severity, "severity"),
        secret_type=values.get("secret_type"),
        repo=values.get("repo"),
        visibility=choice(Visibility, "visibility"),
        context=choice(FindingContext, "context"),
        author=values.get("author"),
        assignee=read_assignee(values, email),
        scan=id_("scan"),
        service=values.get("service"),
        min_score=read_score(values, problems),
        seen_from=read_day(values, "date_from", problems, zone),
        seen_before=read_day(values, "date_to", problems, zone, following=True),
        terms=read_terms(values),
        page=whole_number(page) or 1,
        per_page=PER_PAGE,
        order_by=choice(OrderBy, "order_by") or OrderBy.COMPOSITE_SCORE,
        order_dir=choice(OrderDir, "order_dir") or OrderDir.DESC,
    )
    target = id_("target")
    return ListView(query, values, tuple(problems), target)


def same_view(address: str) -> str:
    """Return the query string of a view with only known parameters; "" if it is too long for a view."""
    if len(address) > VIEW_QUERY_LENGTH:
        return ""
    return urlencode([(name, value) for name, value in parse_qsl(address.lstrip("?")) if name in NAMES])


def read_values(parameters: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the parameters with these names that are not empty."""
    return {
        name: parameters[name].strip()
        for name in names
        if parameters.get(name, "").strip() and "\0" not in parameters[name]
    }


def read_choice(values: dict[str, str], name: str, problems: list[str], kind: type[E]) -> E | None:
    """Return a parameter as an enum member; report and remove an unknown value."""
    if (text := values.get(name)) is None:
        return None
    try:
        return kind(text)
    except ValueError:
        problems.append(f"{name.replace('_', ' ')} “{values.pop(name)[:40]}”")
        return None


def read_assignee(values: Mapping[str, str], email: str) -> str | None:
    """Return the assignee of the filter as a query has it: an address, or empty for nobody."""
    chosen = values.get("assignee")
    return {UNASSIGNED: "", ME: email}.get(chosen, chosen) if chosen else None


def read_terms(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of the search."""
    return tuple(values.get("q", "")[:QUERY_LENGTH].split()[:QUERY_TERMS])


def whole_number(text: str) -> int | None:
    """Return a non-negative number of at most 15 digits; None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def read_score(values: dict[str, str], problems: list[str]) -> float | None:
    """Return `min_score`, or report and remove it if it is not a number from 0 to 100."""
    if (text := values.get("min_score")) is None:
        return None
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text) and float(text) <= 100:
        return float(text)
    problems.append(f"score “{values.pop('min_score')[:40]}”")
    return None


def read_day(
    values: dict[str, str], name: str, problems: list[str], zone: tzinfo, *, following: bool = False
) -> datetime | None:
    """Return the start of a day in a time zone, or of the `following` day as an exclusive bound.

    An invalid date is reported and removed. None also if the calendar has no following day.
    """
    if (text := values.get(name)) is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            day = date.fromisoformat(text)
            zone = zone if 1 < day.year < 9999 else UTC  # the calendar ends there, before it does in UTC
            return datetime.combine(day + timedelta(days=following), time(), zone)
    except OverflowError:
        return None
    except ValueError:
        pass
    problems.append(f"date “{values.pop(name)[:40]}”")
    return None
