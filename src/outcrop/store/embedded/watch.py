"""Watch the embedded server from a thread, and start it again when its process has died."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outcrop.domain.errors import OperatorError
from outcrop.lazy_logger import get_logger

CHECK_INTERVAL = 0.5  # seconds
MAX_RETRY_INTERVAL = 30.0  # seconds between failed starts

log = get_logger()


@contextmanager
def keep_running(
    is_running: Callable[[], bool], restart: Callable[[threading.Event], object]
) -> Iterator[None]:
    """Call `restart` whenever `is_running` returns False, until the block ends.

    `restart` gets an event, and returns soon after that event is set.
    """
    stop = threading.Event()

    def watch() -> None:
        interval = CHECK_INTERVAL
        while not stop.wait(interval):
            try:
                if not is_running():
                    restart(stop)
            except OperatorError as error:
                log.error("database_not_started", error=error.message)  # noqa: TRY400
                interval = min(interval * 2, MAX_RETRY_INTERVAL)
            except OSError as error:
                log.error("database_not_started", error=error.strerror or type(error).__name__)  # noqa: TRY400
                interval = min(interval * 2, MAX_RETRY_INTERVAL)
            else:
                interval = CHECK_INTERVAL

    thread = threading.Thread(target=watch, name="embedded-server-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
