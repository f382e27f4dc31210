"""Workers as operators run them: several processes on one database, killed, stopped, without a database."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from outcrop.domain.clock import now
from outcrop.domain.finding import TriageAction
from outcrop.domain.paging import FindingQuery
from outcrop.domain.target import TargetKind
from outcrop.services.findings import bulk_triage
from outcrop.store.db import Connection
from outcrop.store.embedded.server import embedded_postgres
from tests.support.databases import migrated_database
from tests.support.factories import make_line
from tests.support.rulesets import cached_in
from tests.support.workers import COMMAND, Deployment, open_deployment, until

SLOW = 120.0  # seconds: longer than any test waits for one answer
CLONE = ["refs", "pack", "pack"]  # what git asks for, once: the protocol, the refs, the objects


@pytest.fixture
def there(cluster: str, worker_id: str, tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, migrated_database(cluster, f"workers_{worker_id}")) as made:
        yield made


def test_a_run_of_a_target_waits_for_a_worker_and_can_be_followed(there: Deployment) -> None:
    names = there.organisation("acme", 3)
    target = there.outcrop("target", "add", "--account", "acme", "github:acme")
    first = there.outcrop("target", "run", "--account", "acme", target["id"])
    assert (first["status"], first["trigger"], first["target"], first["started_at"]) == (
        "queued",
        "cli",
        "github:acme",
        None,
    )
    assert there.status(first["id"]) == "queued"
    there.git.delay = 0.3
    there.worker()
    seen = until(
        lambda: run if 0 < (run := there.run(first["id"]))["progress"]["targets"] < 3 else None,
        "some sources to be done",
    )
    assert (seen["status"], seen["finished_at"], seen["findings_new"]) == (
        "running",
        None,
        seen["progress"]["targets"],
    )
    there.git.delay = 0
    done = there.wait_for_end(first["id"])
    assert (done["status"], done["error"], done["coverage_gaps"]) == ("completed", None, [])
    assert (done["findings_new"], done["findings_seen"], done["findings_resolved"]) == (3, 3, 0)
    assert done["progress"] == {
        "targets": 3,
        "commits": 3,
        "blobs": 3,
        "pages": 0,
        "bytes": done["progress"]["bytes"],
    }
    assert done["created_at"] <= done["started_at"] <= done["finished_at"]
    assert there.recorded() == [(name, 1, 1) for name in names]
    time.sleep(1.1)  # times are whole seconds
    second = there.outcrop("target", "run", "--account", "acme", target["id"])
    assert [run["id"] for run in there.tenant.get("/scans").json()["data"]] == [second["id"], first["id"]]
    assert there.wait_for_end(second["id"])["findings_seen"] == 3
    assert there.recorded() == [(name, 2, 1) for name in names]
    start_bulk_triage(there)
    until(lambda: there.jobs() == 0, "nothing to be left to do")
    assert {finding["status"] for finding in there.tenant.get("/findings").json()["data"]} == {"resolved"}


def start_bulk_triage(there: Deployment) -> None:
    """Queue a job that resolves all findings, as the portal does."""
    account = there.tenant.account.id

    async def main(db: Connection) -> None:
        ids = await bulk_triage.select_matching(db, account, FindingQuery(), expected=3)
        async with db.transaction():
            await bulk_triage.start_bulk(
                db, account, ids, TriageAction.RESOLVE, note=None, by="a test", now=now()
            )

    there.backend.run(main, transaction=False)


def test_a_worker_beside_the_service_shares_an_organisation_with_the_one_inside(there: Deployment) -> None:
    names = there.organisation("acme", 10)
    there.popen("serve", "--port", "0")
    there.worker(jobs=2, dead_after=20)  # as the one inside
    rows = 2 * 5  # one for each of the five queues
    until(lambda: there.backend.sql("SELECT count(*) FROM procrastinate_workers") == [(rows,)], "two workers")
    there.git.delay = 0.2
    scan_id = there.start(TargetKind.OWNER, "github:acme")
    workers: set[int] = set()
    doing = "SELECT worker_id FROM procrastinate_jobs WHERE status = 'doing' AND task_name = 'look_at_source'"
    while there.status(scan_id) not in {"completed", "failed"}:
        workers |= {id_ for (id_,) in there.backend.sql(doing)}
        time.sleep(0.05)
    assert len(workers) == 2
    assert there.run(scan_id)["findings_new"] == 10
    assert [there.git_requests(f"{name}.git") for name in names] == [CLONE] * 10
    assert there.recorded() == [(name, 1, 1) for name in sorted(names)]


def test_two_runs_of_one_repository_look_at_it_one_after_the_other(there: Deployment) -> None:
    address = there.repository("shop")
    there.git.delay = 0.3
    runs = [there.start(TargetKind.REPOSITORY, address) for _ in range(2)]
    there.worker(jobs=2)
    ended = [there.wait_for_end(scan_id) for scan_id in runs]
    assert sorted((run["status"], run["findings_new"], run["findings_seen"]) for run in ended) == [
        ("completed", 0, 1),
        ("completed", 1, 1),
    ]
    assert there.git_requests("shop") == [*CLONE, "refs", "pack"], (
        "one after the other, and the second had nothing to bring"
    )
    ((_, seen, events),) = there.recorded()
    assert (seen, events) == (2, 1)


def test_what_a_killed_worker_was_at_is_done_by_another_and_recorded_once(there: Deployment) -> None:
    names = there.organisation("acme", 3)
    there.git.delay = SLOW
    scan_id = there.start(TargetKind.OWNER, "github:acme")
    first = there.worker(jobs=2)
    until(lambda: len(there.git.requests) >= 2, "the first worker to be at it")
    assert there.work_folders()
    there.git.delay = 0
    first.kill()
    until(there.requeue_stalled_jobs, "the worker to be missed")
    assert there.status(scan_id) == "interrupted"
    second = there.worker(jobs=2)
    run = there.wait_for_end(scan_id)
    assert (run["status"], run["findings_new"], run["findings_seen"], run["progress"]["targets"]) == (
        "completed",
        3,
        3,
        3,
    )
    assert there.recorded() == [(name, 1, 1) for name in names]
    assert sorted(tries for _, tries, _ in there.sources(scan_id).values()) in ([1, 2, 2], [2, 2, 2])
    until(lambda: there.jobs() == 0, "nothing to be left to do")
    second.send_signal(signal.SIGTERM)
    assert second.wait(120) == 0
    until(lambda: not there.processes(), "every process to be gone")
    assert there.work_folders() == []


def test_a_source_that_kills_three_workers_has_failed_and_the_rest_is_done(there: Deployment) -> None:
    (good,) = there.organisation("acme", 1)
    there.github.add_repo(bad := "acme/bad", has_wiki=False, clone_url="https://hang.example/acme/bad.git")
    scan_id = there.start(TargetKind.OWNER, "github:acme")
    for _ in range(3):
        before = len(there.hanging)
        process = there.worker()
        until(lambda n=before: len(there.hanging) > n, "the worker to be at it")
        until(
            lambda: sum(state == "done" for state, _, _ in there.sources(scan_id).values()) == 1,
            "the other source to be done",
        )
        process.kill()
        process.wait()
    there.worker()
    run = there.wait_for_end(scan_id)
    assert (run["status"], run["error"], run["findings_new"]) == ("completed", None, 1)
    assert run["coverage_gaps"] == [{"what": bad, "why": "its worker has died 3 times"}]
    assert sorted(there.sources(scan_id).values()) == [
        ("done", 1, None),
        ("failed", 4, "its worker has died 3 times"),
    ]
    assert there.recorded() == [(good, 1, 1)]
    until(lambda: there.jobs() == 0, "nothing to be left to do")


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGTERM, False), (signal.SIGINT, True)],
    ids=["by its manager", "by Ctrl-C, with all of its processes"],
)
def test_a_worker_that_is_stopped_releases_its_source(
    there: Deployment, number: signal.Signals, *, to_all: bool
) -> None:
    address = there.repository("shop")
    there.git.delay = SLOW
    scan_id = there.start(TargetKind.REPOSITORY, address)
    first = there.worker()
    until(lambda: there.git.requests, "the worker to be at it")
    began = time.monotonic()
    for pid in pids_of(there) if to_all else [first.pid]:
        os.kill(pid, number)
    assert first.wait(120) == 0
    assert time.monotonic() - began < 60
    until(lambda: not there.processes(), "every process to be gone")
    assert there.status(scan_id) == "interrupted"
    assert list(there.sources(scan_id).values()) == [("queued", 0, None)]
    assert "Traceback" not in there.log(first)
    there.git.delay = 0
    there.worker()
    assert there.wait_for_end(scan_id)["status"] == "completed"
    assert list(there.sources(scan_id).values()) == [("done", 1, None)]


def test_a_worker_without_its_database_waits_and_goes_on_and_stops_on_request(tmp_path: Path) -> None:
    data = tmp_path / "database"
    with embedded_postgres(data) as url, open_deployment(tmp_path, url) as there:
        old, young = (make_line(last_seen_at=(now() - timedelta(days=days)).isoformat()) for days in (6, 4))
        there.backend.import_(there.tenant.account, old, young)
        names = there.organisation("acme", 2)
        there.git.delay = 3
        scan_id = there.start(TargetKind.OWNER, "github:acme")
        worker = there.worker(jobs=2, OUTCROP_STALE_AFTER_DAYS="5")
        until(lambda: len(there.git.requests) == 2, "the worker to be at it")
        assert [there.tenant.finding(item["id"])["status"] for item in (old, young)] == ["stale", "active"]
        stop_database(data)
        time.sleep(4)  # the result cannot be recorded
        there.git.delay = 0
        with embedded_postgres(data):  # processes that use it keep it running
            pass
        run = there.wait_for_end(scan_id)
        assert (run["status"], run["findings_new"], run["coverage_gaps"]) == ("completed", 2, [])
        assert [found for found in there.recorded() if found[0] in names] == [(name, 1, 1) for name in names]
        assert worker.poll() is None, "it is the same worker"
        assert "database_unavailable" in there.log(worker)
        there.git.delay = SLOW
        there.start(TargetKind.REPOSITORY, there.repository("slow"))
        until(lambda: there.git_requests("slow"), "the worker to be at it")
        stop_database(data)
        began = time.monotonic()
        worker.terminate()
        assert worker.wait(120) == 0
        assert time.monotonic() - began < 60
        with embedded_postgres(data):
            pass


def test_a_worker_started_without_its_database_waits_for_it(tmp_path: Path) -> None:
    data, log = tmp_path / "database", tmp_path / "worker.log"
    with embedded_postgres(data) as url:
        pass
    environment = os.environ | {
        "OUTCROP_DATABASE_URL": url,
        "OUTCROP_DATA_DIR": str(tmp_path / "data"),
        "OUTCROP_LOG_FORMAT": "json",
        "XDG_CACHE_HOME": str(cached_in(tmp_path / "cache")),
    }

    def start_worker() -> "subprocess.Popen[bytes]":
        with log.open("w") as file:
            return subprocess.Popen([COMMAND, "worker", "--jobs", "1"], env=environment, stderr=file)

    def attempts() -> list[int]:
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return [line["attempt"] for line in lines if line["event"] == "database_unavailable"]

    impatient = start_worker()
    until(lambda: attempts() or impatient.poll() is not None, "the first attempt", 120)
    impatient.terminate()
    assert impatient.wait(60) == 0, "it can be stopped while it waits"
    worker = start_worker()
    until(lambda: len(attempts()) >= 3 or worker.poll() is not None, "three attempts", 120)
    assert attempts()[:3] == [1, 2, 3]
    with embedded_postgres(data), psycopg.connect(url, autocommit=True) as db:
        until(lambda: has_worker(db), "the worker to work", 300)
        worker.terminate()
        assert worker.wait(60) == 0
    assert "Traceback" not in log.read_text()


def has_worker(db: psycopg.Connection) -> bool:
    try:
        return db.execute("SELECT 1 FROM procrastinate_workers").fetchone() is not None
    except psycopg.errors.UndefinedTable:
        return False


def stop_database(data: Path) -> None:
    pid = int((data / "postgres/data/postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGINT)  # a fast stop, as an operator's restart does it
    until(lambda: not (data / "postgres/data/postmaster.pid").exists(), "the database to be gone")


def pids_of(there: Deployment) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(there.folder).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_run_ends_while_all_sources_of_another_account_hang(there: Deployment) -> None:
    for number in range(12):
        there.start(TargetKind.REPOSITORY, f"https://hang.example/r{number}.git")
    there.worker(jobs=2)
    until(lambda: len(there.hanging) >= 2, "two sources to hang")
    second = there.backend.tenant(slug="second")
    run_id = there.start(TargetKind.REPOSITORY, there.repository("quick"), second)
    until(
        lambda: second.get(f"/scans/{run_id}").json()["data"]["status"] == "completed",
        "the other account's run to end",
    )
    assert len(there.hanging) == 2
    assert there.backend.sql(
        "SELECT count(*) FROM scan_sources WHERE account_id = %s AND status = 'running' AND source <> 'plan'",
        there.tenant.account.id,
    ) == [(2,)]
