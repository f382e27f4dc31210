"""The clock of the product: the only place that reads the time for decisions and records."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time in UTC, without microseconds, as the database stores times."""
    return datetime.now(UTC).replace(microsecond=0)
