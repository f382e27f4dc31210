"""The clock of the product: the only place that reads the time for decisions and records."""

from datetime import UTC, datetime, timedelta

# Between the clock of a machine and the database's: a worker whose clock is further off deletes nothing.
MAX_CLOCK_ERROR = timedelta(minutes=1)


def now() -> datetime:
    """Return the current time in UTC, without microseconds, as the database stores times."""
    return datetime.now(UTC).replace(microsecond=0)
