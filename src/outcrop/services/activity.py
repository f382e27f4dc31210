"""Measure what waits in the database of the service, for its metrics."""

from dataclasses import dataclass

from outcrop.domain.errors import OutcropError
from outcrop.store import db as database
from outcrop.store import outbox, schema
from outcrop.store.db import UNAVAILABLE
from outcrop.store.runs import jobs

MEASURE_SECONDS = 3.0  # an answer to GET /metrics waits this long at most
QUEUE_NAMES = {
    jobs.QUEUE: "runs",
    jobs.INTERACTIVE_QUEUE: "requests",
    jobs.IMPORT_QUEUE: "imports",
    jobs.PUSH_QUEUE: "pushes",
    jobs.POLL_QUEUE: "polls",
}


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """Jobs and deliveries that wait."""

    jobs: dict[str, int]  # by name of the queue
    oldest_job_seconds: dict[str, float]  # by name of the queue; 0 if none waits
    deliveries: int


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether the database answers, and the work that waits in it; None if its schema is not complete."""

    is_up: bool
    waiting: WaitingWork | None = None


async def measure(url: str | None) -> Activity:
    """Return the activity of a database, on a connection of its own; `url` is None before it is opened."""
    if url is None:
        return Activity(is_up=False)
    try:
        async with await database.connect(url, statement_timeout=MEASURE_SECONDS) as db:
            if await schema.pending_migrations(db):
                return Activity(is_up=True)
            queues = await jobs.count_waiting(db)
            return Activity(
                is_up=True,
                waiting=WaitingWork(
                    {QUEUE_NAMES.get(queue, queue): queues.get(queue, (0, 0.0))[0] for queue in _all(queues)},
                    {QUEUE_NAMES.get(queue, queue): queues.get(queue, (0, 0.0))[1] for queue in _all(queues)},
                    await outbox.count_waiting(db),
                ),
            )
    except (*UNAVAILABLE, OutcropError):
        return Activity(is_up=False)


def _all(queues: dict[str, tuple[int, float]]) -> list[str]:
    """Return the names of all queues, those without a waiting job too."""
    return sorted({*QUEUE_NAMES, *queues})
