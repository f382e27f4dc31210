"""Pack suppressed, status, source type and validation of a finding into one small number, its facet.

Migration 0002 computes the column `facet` the same way.
"""

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
    """Return the facet of these four values."""
    return suppressed * 125 + _STATUS[status] * 25 + _SOURCE[source_type] * 5 + _VALIDATION[validation]


def decode_facet(facet: int) -> tuple[bool, Status, SourceType, Validation]:
    """Return the (suppressed, status, source type, validation) that a facet encodes."""
    return facet >= 125, _STATUSES[facet // 25 % 5], _SOURCES[facet // 5 % 5], _VALIDATIONS[facet % 5]


def list_matching_facets(query: FindingQuery) -> list[int] | None:
    """Return every facet that the query's filters accept; None if they accept all facets."""
    suppressed = query.suppressed
    if query.status is Status.ACTIVE and suppressed is None:
        suppressed = False  # the list of active findings does not show suppressed ones unless asked to
    if query.status is None and query.source_type is None and query.validation is None and suppressed is None:
        return None
    return [
        encode_facet(suppressed=s, status=st, source_type=so, validation=v)
        for s, st, so, v in product(
            _accepted_values(suppressed, (False, True)),
            _accepted_values(query.status, Status),
            _accepted_values(query.source_type, SourceType),
            _accepted_values(query.validation, Validation),
        )
    ]


def _accepted_values(wanted: T | None, all_values: Iterable[T]) -> Iterable[T]:
    """Return the wanted value alone, or all values if no value is wanted."""
    return all_values if wanted is None else (wanted,)
