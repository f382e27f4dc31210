"""A running process ends its work when a newer program changes the schema to one that it does not know."""

import asyncio
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import httpx
import pytest

from outcrop.domain.account import Account
from outcrop.settings import Settings
from outcrop.store.schema import newest_version
from outcrop.worker.periodic import run_every
from outcrop.worker.queues import build_app, run_queues
from tests.support.backend import Backend, running_server
from tests.support.pipeline import Pipeline, repository_spec, token
from tests.support.queued_runs import enqueue, wait_in_loop

FUTURE = "INSERT INTO migrations VALUES (9999, 'from the future', now(), %s)"
PAST = "DELETE FROM migrations WHERE version = 9999"


@pytest.fixture
def migrate_to(backend: Backend) -> Iterator[Callable[[int], object]]:
    """Record a migration of a newer program whose schema works from a version on; undo it at the end."""
    yield lambda lowest: backend.sql(FUTURE, lowest)
    backend.sql(PAST)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait at most a minute until the condition is true."""
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_api_is_not_ready_and_refuses_requests(
    settings: Settings, backend: Backend, migrate_to: Callable[[int], object]
) -> None:
    key = backend.tenant().key
    with (
        running_server(settings, check_schema_every=0.05, rate_limit=0) as server,
        httpx.Client(base_url=server.base_url, headers={"Authorization": f"Bearer {key}"}) as client,
    ):
        assert client.get("/readyz").status_code == 200
        migrate_to(newest_version())
        time.sleep(0.5)
        assert client.get("/readyz").status_code == 200, "this version still works on the schema"
        assert client.get("/api/v1/findings").status_code == 200
        backend.sql(PAST)
        migrate_to(newest_version() + 1)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/readyz").json() == {"status": "outdated"}
        assert client.get("/healthz").status_code == 200
        refused = client.get("/api/v1/findings")
        assert (refused.status_code, refused.json()["error"]) == (503, "busy")
        assert int(refused.headers["Retry-After"]) >= 1
        assert client.get("/sign-in").status_code == 503


def test_a_worker_ends_its_jobs_and_begins_no_others(pipeline: Pipeline, account: Account) -> None:
    names = [f"{pipeline.add_owner()}/shop" for _ in range(2)]
    for name in names:
        pipeline.add_repository(name, {"a.py": token(name)})
    runtime = pipeline.runtime

    def status(scan_id: UUID) -> str:
        return str(pipeline.sql("SELECT status FROM scans WHERE id = %s", scan_id)[0][0])

    async def work() -> tuple[str, str]:
        queues = asyncio.create_task(
            run_queues(build_app(runtime, pipeline.context), pipeline.context.jobs, 20)
        )
        pipeline.git.delay = 1.0
        pipeline.git.requests.clear()
        first = await enqueue(pipeline, account, repository_spec(names[0]))
        await wait_in_loop(lambda: bool(pipeline.git.requests))
        runtime.outdated.set()
        second = await enqueue(pipeline, account, repository_spec(names[1]))
        await wait_in_loop(lambda: status(first) == "completed")
        await asyncio.sleep(2.0)  # the worker asks for jobs each second
        queues.cancel()
        await asyncio.gather(queues, return_exceptions=True)
        return status(first), status(second)

    try:
        assert pipeline.wait(work()) == ("completed", "queued")
    finally:
        pipeline.git.delay = 0
        pipeline.sql("DELETE FROM procrastinate_jobs")


def test_no_periodic_task_is_run_any_more() -> None:
    async def main() -> int:
        outdated, stop, calls = asyncio.Event(), asyncio.Event(), 0

        async def task() -> None:
            nonlocal calls
            calls += 1
            outdated.set()

        running = asyncio.create_task(run_every(0.01, outdated, stop, task))
        await asyncio.sleep(0.2)
        stop.set()
        await running
        return calls

    assert asyncio.run(main()) == 1
