"""The tables of the page Numbers as CSV files. Times are in hours, and empty where nothing was closed."""

from collections.abc import Iterable

from starlette.responses import Response

from outcrop.domain.errors import NotFoundError
from outcrop.domain.finding import Severity
from outcrop.domain.reports.csv_cells import to_cell, write_rows
from outcrop.portal.numbers.page import read_months
from outcrop.portal.request import PortalRequest
from outcrop.services import numbers
from outcrop.services.numbers import Numbers, TimeToClose

_TIMES = ("median_hours", "ninety_percent_hours")
_Rows = Iterable[tuple[object, ...]]


def _list_months(found: Numbers) -> _Rows:
    open_names = tuple(f"open_{severity}" for severity in Severity)
    yield ("month", "new", "closed", "open", *open_names, "closed_in_time", "closed_late", *_TIMES)
    for month in found.months:
        by_severity = (month.open[severity] for severity in Severity)
        yield (
            *(f"{month.month:%Y-%m}", month.opened, month.closed, month.open_total, *by_severity),
            *(month.in_time, month.late, *_times(month.time)),
        )


def _list_severities(found: Numbers) -> _Rows:
    yield (
        *("severity", "open", "overdue", "due_soon", "due_later", "without_due_date"),
        *("closed", "closed_in_time", "closed_late", *_TIMES),
    )
    for row in found.severities:
        due = row.due
        yield (
            *(row.severity, due.open, due.overdue, due.soon, due.later, due.without),
            *(row.closed, row.in_time, row.late, *_times(row.time)),
        )


def _list_types(found: Numbers) -> _Rows:
    yield ("type", "open", "new_this_month", "new_last_month", "closed_this_month", "closed_last_month")
    for row in found.types:
        yield (row.type, row.open, row.new, row.new_before, row.closed, row.closed_before)


def _list_repositories(found: Numbers) -> _Rows:
    yield ("repository", "active_findings", "valid_findings")
    for row in found.repositories:
        yield (row.name, row.active, row.valid)


_TABLES = {
    "months": _list_months,
    "severities": _list_severities,
    "types": _list_types,
    "repositories": _list_repositories,
}


async def download(request: PortalRequest) -> Response:
    """Send one table, with all its rows."""
    if (rows := _TABLES.get(request.path("table"))) is None:
        raise NotFoundError("there is no such table")
    found = await numbers.get_numbers(
        request.db, request.account_id, now=request.now, months=read_months(request), top=None
    )
    body = write_rows([to_cell(value) for value in row] for row in rows(found))
    name = f"outcrop-{request.path('table')}-{request.signed.account.slug}-{request.now:%Y%m%d}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type="text/csv; charset=utf-8", headers=headers)


def _times(time: TimeToClose | None) -> tuple[object, object]:
    """Return the cells of a time to close."""
    return ("", "") if time is None else (time.median, time.ninety)
