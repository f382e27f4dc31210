"""Queries for the list of findings, pages of results, and saved views."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar
from uuid import UUID

from outcrop.domain.finding import (
    FindingContext,
    Severity,
    SourceType,
    Status,
    Validation,
    Visibility,
    score_bounds,
)

T = TypeVar("T")


class OrderBy(StrEnum):
    COMPOSITE_SCORE = "composite_score"
    FIRST_SEEN_AT = "first_seen_at"
    LAST_SEEN_AT = "last_seen_at"
    UPDATED_AT = "updated_at"


class OrderDir(StrEnum):
    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, slots=True)
class FindingQuery:
    """Filters, order and page of a list of findings; filters combine with AND."""

    status: Status | None = None
    source_type: SourceType | None = None
    validation: Validation | None = None
    suppressed: bool | None = None
    service: str | None = None
    min_score: float | None = None
    seen_from: datetime | None = None  # first seen at or after
    seen_before: datetime | None = None  # first seen before; None if there is no upper bound
    updated_since: datetime | None = None  # changed at or after
    severity: Severity | None = None
    secret_type: str | None = None
    rule: str | None = None
    repo: str | None = None  # in any case
    visibility: Visibility | None = None
    author: str | None = None
    scan: UUID | None = None  # new in that run
    context: FindingContext | None = None
    secret_types: tuple[str, ...] | None = None  # one of these types
    sources: tuple[str, ...] | None = None  # in one of these sources
    assignee: str | None = None  # an address in any case, or empty: nobody
    incident_id: UUID | None = None
    terms: tuple[str, ...] = ()
    # For each term, the credential types that match it too; empty: a term is only searched in the text.
    term_types: tuple[tuple[str, ...], ...] = ()
    page: int = 1
    per_page: int = 25
    order_by: OrderBy = OrderBy.COMPOSITE_SCORE
    order_dir: OrderDir = OrderDir.DESC

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.per_page

    def types_of_term(self, number: int) -> list[str]:
        """Return the credential types that match the term with this number, beside those whose text does."""
        return list(self.term_types[number]) if self.term_types else []

    @property
    def lowest_score(self) -> float:
        """The lowest score that `min_score` and `severity` accept."""
        lowest = 0.0 if self.severity is None else score_bounds(self.severity)[0]
        return max(lowest, self.min_score or 0.0)

    @property
    def score_below(self) -> float | None:
        """The lowest score that is too high for `severity`; None if none is."""
        return None if self.severity is None else score_bounds(self.severity)[1]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    total: int
    page: int
    per_page: int
    updated_until: datetime | None = None  # every change before this time is visible

    @property
    def pages(self) -> int:
        return -(-self.total // self.per_page)


@dataclass(frozen=True, slots=True)
class SavedView:
    """A named filter of the list of findings, shared by all members of an account."""

    id: UUID
    name: str
    query: str  # the query string of the list's address, without the question mark
    created_by: str
    created_at: datetime
