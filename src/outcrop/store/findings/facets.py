"""Four filters as one small number: suppressed, status, source type and validation, packed as migration 0002 does."""

from collections.abc import Iterable
from itertools import product
from typing import TypeVar

from outcrop.domain.finding import SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery

T = TypeVar("T")

_STATUSES, _SOURCES, _VALIDATIONS = tuple(Status), tuple(SourceType), tuple(Validation)
_STATUS = {value: i for i, value in enumerate(Status)}
_SOURCE = {value: i for i, value in enumerate(SourceType)}
_VALIDATION = {value: i for i, value in enumerate(Validation)}


def encode_facet(*, suppressed: bool, status: Status, source_type: SourceType, validation: Validation) -> int:
    return suppressed * 125 + _STATUS[status] * 25 + _SOURCE[source_type] * 5 + _VALIDATION[validation]


def decode_facet(facet: int) -> tuple[bool, Status, SourceType, Validation]:
    """Take a facet apart again."""
    return (
        facet >= 125,
        _STATUSES[facet // 25 % 5],
        _SOURCES[facet // 5 % 5],
        _VALIDATIONS[facet % 5],
    )


def list_matching_facets(query: FindingQuery) -> list[int] | None:
    """Give every facet the query lets through, or None where it lets all of them through."""
    suppressed = query.suppressed
    if query.status is Status.ACTIVE and suppressed is None:
        suppressed = False  # the active view leaves out what was hidden from it
    if query.status is None and query.source_type is None and query.validation is None and suppressed is None:
        return None
    return [
        encode_facet(suppressed=s, status=st, source_type=so, validation=v)
        for s, st, so, v in product(
            _one_or_all(suppressed, (False, True)),
            _one_or_all(query.status, Status),
            _one_or_all(query.source_type, SourceType),
            _one_or_all(query.validation, Validation),
        )
    ]


def _one_or_all(one: T | None, every: Iterable[T]) -> Iterable[T]:
    return every if one is None else (one,)
