"""Jobs that wait in the database, written in the transaction that makes them needed. The tables are procrastinate's own.

procrastinate is loaded where it is used: most commands need none of it.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.store.db import Connection

if TYPE_CHECKING:
    from procrastinate import App

QUEUE = "outcrop"
INTERACTIVE_QUEUE = "asked"  # what a person waits for: not behind runs that take hours


async def migrate(db: Connection) -> None:
    """Bring procrastinate's tables to the version that is installed; runs inside the migration's own transaction."""
    await db.execute("CREATE TABLE IF NOT EXISTS job_migrations (name text PRIMARY KEY)")
    done = {name for (name,) in await (await db.execute("SELECT name FROM job_migrations")).fetchall()}
    if (installed := f"procrastinate {version('procrastinate')}") in done:
        return
    from procrastinate.schema import SchemaManager  # noqa: PLC0415

    scripts = _scripts(SchemaManager.get_migrations_path())
    if not done:
        await db.execute(SchemaManager.get_schema().encode())
    for script in scripts:
        if done and script.name not in done:
            await db.execute(script.read_bytes())
    names = [script.name for script in scripts if script.name not in done]
    await db.execute("INSERT INTO job_migrations SELECT unnest(%s::text[])", [[installed, *names]])


def _scripts(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.sql"))


@cache
def _writer() -> "App":
    """Make what writes jobs on a caller's connection; it is never opened itself."""
    import procrastinate  # noqa: PLC0415

    return procrastinate.App(connector=procrastinate.PsycopgConnector())


async def defer_jobs(
    db: Connection, task: str, jobs: Sequence[tuple[str, dict[str, Any]]], queue: str = QUEUE
) -> None:
    """Have a task run once for each lock and its arguments; of those with the same lock one runs at a time."""
    for lock, arguments in jobs:
        await (
            _writer()
            .configure_task(task, lock=lock, queue=queue, connection=db, allow_unknown=True)
            .defer_async(**arguments)
        )


async def is_queued(db: Connection, lock: str) -> bool:
    """Tell whether a job with this lock waits to be begun."""
    cursor = await db.execute(
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = %s AND status = 'todo')", [lock]
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def requeue_stalled(db: Connection, dead_after: float) -> list[dict[str, Any]]:
    """Let jobs wait again whose worker has not been heard of for so many seconds, or is gone; give their arguments.

    While the database was away nobody could be heard of, so its return is waited for as long. They are written as procrastinate's
    own retry does; how often one may be tried again is decided where it is done.
    """
    cursor = await db.execute(
        """SELECT j.id, j.args FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
           WHERE j.status = 'doing' AND j.queue_name = ANY(%s)
             AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => %s))
             AND pg_postmaster_start_time() < now() - make_interval(secs => %s)
           FOR UPDATE OF j SKIP LOCKED""",
        [[QUEUE, INTERACTIVE_QUEUE], dead_after, dead_after],
    )
    stalled = await cursor.fetchall()
    for job_id, _ in stalled:
        await db.execute("SELECT procrastinate_retry_job_v2(%s, now(), NULL, NULL, NULL)", [job_id])
    return [arguments for _, arguments in stalled]
