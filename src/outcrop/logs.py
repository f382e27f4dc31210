"""Write structured logs to standard error.

A log line is an event name with fields, never a sentence with values in it. A query string is never logged.
"""

import logging
import sys
from typing import Literal

from outcrop.lazy_logger import configure_on_first_use, get_logger

log = get_logger()


def set_up_logs(level: str, form: Literal["text", "json"]) -> None:
    """Configure structlog for this process, and let libraries log warnings and errors only."""
    configure_on_first_use(lambda: _configure(level, form))
    # Libraries log through the standard module.
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryHandler()], force=True)
    # The pool's messages repeat what it raises, and one command or request would print several.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)


def _configure(level: str, form: Literal["text", "json"]) -> None:
    """Configure structlog."""
    import structlog  # noqa: PLC0415 - few commands log something

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Local variables are never rendered in tracebacks: a credential could be among them.
    if form == "json":
        render: list[structlog.typing.Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        render = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


class _LibraryHandler(logging.Handler):
    """Writes the messages of libraries as events, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record with its logger, the first line of its message, and the class of its exception."""
        fields = {"logger": record.name, "message": _first_line(record.getMessage())}
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = record.exc_info[0].__name__
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write("library_message", **fields)


def _first_line(message: str) -> str:
    """Return the first line of a message. The rest may be a traceback, which may contain a credential."""
    return message.strip().partition("\n")[0]
