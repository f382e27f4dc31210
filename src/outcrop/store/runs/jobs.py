"""Put jobs into procrastinate's queue, in the transaction that makes them necessary.

procrastinate is imported inside the functions that use it: most commands do not need it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from outcrop.store.db import Connection

if TYPE_CHECKING:
    from procrastinate import App

QUEUE = "outcrop"
INTERACTIVE_QUEUE = "asked"  # jobs that a person waits for; they must not queue behind runs that take hours
IMPORT_QUEUE = "imports"  # a CI job may wait for its import; it must not queue behind runs either
PUSH_QUEUE = "pushes"  # a leak is reported within a minute of its push, also while thousands of sources wait
POLL_QUEUE = "polls"  # a host that answers slowly must not delay pushes
# Session settings for procrastinate's own statements. Each touches a few jobs, but a plan that was made while
# the queue was short, or from old statistics, would join the whole queue with itself, or sort it.
SESSION_OPTIONS = " ".join(
    f"-c enable_{method}=off" for method in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")
)
# Changes to procrastinate's tables, by the name under which `job_migrations` lists them. Taking a job looks
# for others with the same lock, for which procrastinate has no index. A queue has many dead rows, so vacuum
# starts by their number.
_CHANGES = {
    "outcrop lock index": """
        CREATE INDEX outcrop_jobs_lock ON procrastinate_jobs (lock);
        ALTER TABLE procrastinate_jobs
            SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
        ALTER TABLE procrastinate_events
            SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)""",
    "outcrop indexes of turns": """
        CREATE INDEX outcrop_jobs_turns ON procrastinate_jobs
            (queue_name, ((args ->> 'account_id')::bigint), task_name, (-priority), id) WHERE status = 'todo';
        CREATE INDEX outcrop_jobs_running ON procrastinate_jobs
            (((args ->> 'account_id')::bigint), task_name) WHERE status = 'doing';
        DROP INDEX IF EXISTS outcrop_jobs_account""",
}
# `waiting` walks the accounts and tasks with queued jobs by one probe of the index each, so that the number
# of jobs does not matter. Like procrastinate's own statement, it leaves out a job whose lock another has.
#
# A queue fills and empties faster than statistics follow, so no plan may depend on them. Each part asks for
# an order that one index alone has, and sorting is off. Otherwise the planner takes the index of queue names
# or of priorities if the statistics say that this queue has few jobs, and reads all of it. `OFFSET 0` and the
# subquery of UPDATE keep it from joining the queue with itself.
_CLAIM = """
    WITH RECURSIVE waiting AS (
        (SELECT (args ->> 'account_id')::bigint AS account, task_name AS task
         FROM procrastinate_jobs
         WHERE status = 'todo' AND queue_name = %(queue)s
         ORDER BY (args ->> 'account_id')::bigint, task_name LIMIT 1)
        UNION ALL
        SELECT next.account, next.task
        FROM waiting CROSS JOIN LATERAL (
            SELECT (args ->> 'account_id')::bigint AS account, task_name AS task
            FROM procrastinate_jobs
            WHERE status = 'todo' AND queue_name = %(queue)s
              AND ((args ->> 'account_id')::bigint, task_name) > (waiting.account, waiting.task)
            ORDER BY (args ->> 'account_id')::bigint, task_name LIMIT 1) next
    ), running AS MATERIALIZED (
        SELECT (args ->> 'account_id')::bigint AS account, task_name AS task,
               worker_id IS NOT DISTINCT FROM %(worker)s AS is_here
        FROM procrastinate_jobs WHERE status = 'doing' AND queue_name = %(queue)s
        ORDER BY (args ->> 'account_id')::bigint, task_name
    ), turns AS MATERIALIZED (
        SELECT w.account, w.task
        FROM waiting w
        WHERE (SELECT count(*) FROM running r WHERE r.account = w.account AND r.task = w.task AND r.is_here)
              < coalesce((%(shares)s::jsonb ->> w.task)::bigint, 1)
        ORDER BY (SELECT count(*) FROM running r WHERE r.account = w.account),
                 w.account <= %(last_account)s, w.account, w.task
    ), claimed AS (
        SELECT job.id
        FROM turns CROSS JOIN LATERAL (
            SELECT j.id
            FROM procrastinate_jobs j
            WHERE j.status = 'todo' AND j.queue_name = %(queue)s
              AND (j.args ->> 'account_id')::bigint = turns.account AND j.task_name = turns.task
              AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())
              AND NOT EXISTS (
                SELECT FROM procrastinate_jobs other
                WHERE other.lock = j.lock
                  AND (other.status = 'doing' OR (other.status = 'todo'
                    AND (other.priority > j.priority OR (other.priority = j.priority AND other.id < j.id))))
                OFFSET 0)
            ORDER BY -j.priority, j.id LIMIT 1
            FOR UPDATE OF j SKIP LOCKED) job
        LIMIT 1)
    UPDATE procrastinate_jobs j SET status = 'doing', worker_id = %(worker)s
    WHERE j.id = (SELECT id FROM claimed)
    RETURNING j.id, j.status, j.task_name, j.priority, j.lock, j.queueing_lock, j.args, j.scheduled_at,
        j.queue_name, j.attempts, j.worker_id"""


async def migrate(db: Connection) -> None:
    """Create procrastinate's tables or migrate them to its installed version, in the caller's transaction.

    The table `job_migrations` lists the scripts that were applied and the versions that were reached.
    """
    await db.execute("CREATE TABLE IF NOT EXISTS job_migrations (name text PRIMARY KEY)")
    done = {name for (name,) in await (await db.execute("SELECT name FROM job_migrations")).fetchall()}
    await _migrate_procrastinate(db, done)
    for name in _CHANGES.keys() - done:
        await db.execute(_CHANGES[name].encode())
        await db.execute("INSERT INTO job_migrations VALUES (%s)", [name])


async def _migrate_procrastinate(db: Connection, done: set[str]) -> None:
    """Run procrastinate's scripts that are not in `done`, or create its tables if `done` is empty."""
    if (installed := f"procrastinate {version('procrastinate')}") in done:
        return
    from procrastinate.schema import SchemaManager  # noqa: PLC0415

    scripts = _list_scripts(SchemaManager.get_migrations_path())
    if not done:
        await db.execute(SchemaManager.get_schema().encode())
    for script in scripts:
        if done and script.name not in done:
            await db.execute(script.read_bytes())
    names = [script.name for script in scripts if script.name not in done]
    await db.execute("INSERT INTO job_migrations SELECT unnest(%s::text[])", [[installed, *names]])


def _list_scripts(folder: str) -> list[Path]:
    """Return the SQL files in the folder, sorted by name."""
    return sorted(Path(folder).glob("*.sql"))


@cache
def _job_app() -> "App":
    """Return the procrastinate app that writes jobs on a caller's connection. It is never opened itself."""
    import procrastinate  # noqa: PLC0415

    return procrastinate.App(connector=procrastinate.PsycopgConnector())


class Lane(NamedTuple):
    """The queue of a job, and its priority in that queue and among jobs with the same lock."""

    queue: str
    priority: int = 0


SCHEDULED, INTERACTIVE, IMPORTED = Lane(QUEUE), Lane(INTERACTIVE_QUEUE), Lane(IMPORT_QUEUE)
PUSHED, POLLED = Lane(PUSH_QUEUE, 10), Lane(POLL_QUEUE)
COMPARED = Lane(QUEUE, 5)  # the repositories of a hook that refused deliveries


async def defer_jobs(
    db: Connection, task: str, jobs: Sequence[tuple[str, dict[str, Any]]], lane: Lane = SCHEDULED
) -> None:
    """Queue one job of the task for each (lock, arguments). Jobs with the same lock run one at a time."""
    for lock, arguments in jobs:
        await (
            _job_app()
            .configure_task(
                task,
                lock=lock,
                queue=lane.queue,
                priority=lane.priority,
                connection=db,
                allow_unknown=True,
            )
            .defer_async(**arguments)
        )


async def is_queued(db: Connection, lock: str) -> bool:
    """Whether a job with this lock is queued and has not started."""
    cursor = await db.execute(
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = %s AND status = 'todo')", [lock]
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def count_waiting(db: Connection) -> dict[str, tuple[int, float]]:
    """Return how many jobs of each queue could run now, and the age of the oldest of them in seconds.

    Queues without such a job are left out.
    """
    cursor = await db.execute(
        """WITH waiting AS (
               SELECT queue_name, count(*) AS jobs, min(id) AS oldest FROM procrastinate_jobs
               WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now())
               GROUP BY queue_name
           )
           SELECT queue_name, jobs, greatest(0, extract(epoch FROM clock_timestamp() - (
               SELECT min(e.at) FROM procrastinate_events e WHERE e.job_id = oldest)))::float
           FROM waiting"""
    )
    return {queue: (jobs, age or 0.0) for queue, jobs, age in await cursor.fetchall()}


class Claimer:
    """Claims jobs for one process, so that no account delays the jobs of another.

    `shares` has the number of jobs of one account that the process runs at once, by task. The account with
    the fewest running jobs is next. Among several, the accounts take turns, in the order of their ids.
    """

    def __init__(self, shares: Mapping[str, int]) -> None:
        self._shares = dict(shares)
        self._last_account = 0  # whose job was claimed last

    async def claim(self, db: Connection, queue: str, worker_id: int | None) -> dict[str, Any] | None:
        """Mark the next job of the queue as running by a worker, and return its row; None if there is none.

        A job whose share is used up waits, and so does one whose lock another job has.
        """
        cursor = await db.cursor(row_factory=dict_row).execute(
            _CLAIM,
            {
                "queue": queue,
                "worker": worker_id,
                "shares": Jsonb(self._shares),
                "last_account": self._last_account,
            },
        )
        if (row := await cursor.fetchone()) is not None:
            self._last_account = int(row["args"]["account_id"])
        return row


class JobAttempt(NamedTuple):
    """One run of a job."""

    job_id: int
    attempts: int  # before it


async def requeue_attempt(db: Connection, attempt: JobAttempt) -> None:
    """Queue a job again if this attempt still counts as running."""
    await db.execute(
        """UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + 1, scheduled_at = now()
           WHERE id = %s AND attempts = %s AND status = 'doing'""",
        attempt,
    )


async def notify_of_free_lock(db: Connection, queue: str, lock: str) -> None:
    """Wake the workers of a queue if a job waits for this lock, which nobody holds any more."""
    await db.execute(
        """SELECT pg_notify('procrastinate_queue_v1#' || %s, json_build_object('type', 'job_inserted')::text)
           WHERE EXISTS (SELECT FROM procrastinate_jobs WHERE lock = %s AND status = 'todo')""",
        [queue, lock],
    )


async def requeue_stalled(db: Connection, dead_after: float) -> list[dict[str, Any]]:
    """Queue running jobs again whose worker is gone or sent no heartbeat for `dead_after` seconds.

    Return their arguments. A database that started less than `dead_after` seconds ago requeues nothing:
    while it was down, no worker could send a heartbeat. The number of retries is limited by the job itself.
    """
    cursor = await db.execute(
        """SELECT j.id, j.args
           FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
           WHERE j.status = 'doing' AND j.queue_name = ANY(%s)
             AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => %s))
             AND pg_postmaster_start_time() < now() - make_interval(secs => %s)
           FOR UPDATE OF j SKIP LOCKED""",
        [[QUEUE, INTERACTIVE_QUEUE, IMPORT_QUEUE, PUSH_QUEUE, POLL_QUEUE], dead_after, dead_after],
    )
    stalled = await cursor.fetchall()
    for job_id, _ in stalled:
        await db.execute("SELECT procrastinate_retry_job_v2(%s, now(), NULL, NULL, NULL)", [job_id])
    return [arguments for _, arguments in stalled]
