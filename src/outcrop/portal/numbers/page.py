"""Numbers: how many incidents are open, how fast they are closed, and where they are."""

from starlette.responses import Response

from outcrop.domain.finding import Severity
from outcrop.portal import labels
from outcrop.portal.charts import Series
from outcrop.portal.queries import whole_number
from outcrop.portal.request import PortalRequest
from outcrop.services import numbers
from outcrop.services.numbers import PERIODS, SOON, TOP, MonthNumbers, Numbers

_USUAL = 12  # months


def read_months(request: PortalRequest) -> int:
    """Return the months that the address asks for; the usual ones for any other value."""
    months = whole_number(request.http.query_params.get("months", ""))
    return months if months in PERIODS else _USUAL


async def show_numbers(request: PortalRequest) -> Response:
    months = read_months(request)
    found = await numbers.get_numbers(request.db, request.account_id, now=request.now, months=months)
    return request.render(
        "numbers.html",
        found=found,
        months=months,
        periods=PERIODS,
        soon=SOON,
        top=TOP,
        names=_names(found.months),
        open_series=[
            Series(
                labels.SEVERITY[severity], f"c-{severity}", [month.open[severity] for month in found.months]
            )
            for severity in reversed(Severity)
        ],
        flow_series=[
            Series("new", "c-new", [month.opened for month in found.months]),
            Series("closed", "c-closed", [month.closed for month in found.months]),
        ],
        time_series=_time_series(found),
    )


def _names(months: tuple[MonthNumbers, ...]) -> list[str]:
    """Return the names of months below a chart; the first one and each January have the year."""
    return [
        f"{month.month:%b}\n{month.month:%Y}" if at == 0 or month.month.month == 1 else f"{month.month:%b}"
        for at, month in enumerate(months)
    ]


def _time_series(found: Numbers) -> list[Series]:
    """Return the times to close in days."""
    times = [month.time for month in found.months]
    return [
        Series(
            "median", "c-median", [None if time is None else round(time.median / 24, 1) for time in times]
        ),
        Series("90%", "c-ninety", [None if time is None else round(time.ninety / 24, 1) for time in times]),
    ]
