"""Queries for the list of findings, pages of results, and saved views."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar
from uuid import UUID

from outcrop.domain.finding import SourceType, Status, Validation

T = TypeVar("T")


class OrderBy(StrEnum):
    COMPOSITE_SCORE = "composite_score"
    FIRST_SEEN_AT = "first_seen_at"
    LAST_SEEN_AT = "last_seen_at"


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
    terms: tuple[str, ...] = ()
    page: int = 1
    per_page: int = 25
    order_by: OrderBy = OrderBy.COMPOSITE_SCORE
    order_dir: OrderDir = OrderDir.DESC

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.per_page


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    total: int
    page: int
    per_page: int

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
