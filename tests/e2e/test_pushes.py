"""A pushed leak is reported within a minute while 50,000 sources wait and all other slots are busy."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcrop.domain.push import HookHost
from outcrop.domain.target import TargetKind
from outcrop.services.pipeline.enqueue import SCAN_SOURCE_TASK
from tests.support.databases import migrated_database
from tests.support.pushes import open_sender
from tests.support.workers import Deployment, open_deployment, until

BACKLOG = 50_000


@pytest.fixture
def there(cluster: str, tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, migrated_database(cluster, "pushes")) as deployment:
        yield deployment


def queue_backlog(there: Deployment, scan_id: str, count: int) -> None:
    """Queue sources of a first scan that never answer, as its plan does."""
    account = there.tenant.account.id
    there.backend.sql(
        """INSERT INTO scan_sources (account_id, scan_id, source, spec, status)
           SELECT %s, %s, 'https://hang.example/r' || n,
                  jsonb_build_object('source', 'https://hang.example/r' || n, 'kind', 'git',
                      'url', 'https://hang.example/r' || n || '.git', 'html_url', '', 'full_name', null,
                      'visibility', 'public', 'changed', null, 'gist', false, 'github', false,
                      'commit', null, 'include', '[]'::jsonb, 'exclude', '[]'::jsonb, 'options', '{}'::jsonb),
                  'queued'
           FROM generate_series(1, %s) n""",
        *(account, scan_id, count),
    )
    there.backend.sql(
        """INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args)
           SELECT 'outcrop', %s, concat_ws(' ', %s::int, 'https://hang.example/r' || n),
                  jsonb_build_object('account_id', %s::int, 'scan_id', %s::text,
                                     'source', 'https://hang.example/r' || n)
           FROM generate_series(1, %s) n""",
        *(SCAN_SOURCE_TASK, account, account, scan_id, count),
    )


def test_a_pushed_leak_is_reported_within_a_minute_beside_a_backlog(there: Deployment) -> None:
    address = there.repository("shop")
    there.outcrop("target", "add", "--account", there.tenant.account.slug, address)
    scan_id = there.start(TargetKind.REPOSITORY, "https://hang.example/first.git")
    queue_backlog(there, scan_id, BACKLOG)
    there.worker(jobs=2)
    until(lambda: len(there.hanging) >= 2, "the slots of the first scan to be busy")
    sender = open_sender(there.backend, there.tenant, HookHost.GITLAB)
    began = time.monotonic()
    assert sender.push(address.removesuffix(".git"), branch="main", author="Ada").status_code == 202
    until(lambda: there.recorded() == [("https://git.example/shop", 1, 1)] or None, "the event", 60)
    assert time.monotonic() - began < 60
    (run,) = [run for run in there.tenant.get("/scans").json()["data"] if run["trigger"] == "push"]
    assert (run["push"]["branch"], run["push"]["author"], run["push"]["host"]) == ("main", "Ada", "gitlab")
    ((waiting,),) = there.backend.sql(
        "SELECT count(*) FROM procrastinate_jobs WHERE queue_name = 'outcrop' AND status = 'todo'"
    )
    assert waiting >= BACKLOG - 10
