"""A worker of the last version, which was started before the upgrade, works beside one of this version."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcrop.domain.target import TargetKind
from outcrop.store.schema import newest_version
from tests.support.databases import migrated_database
from tests.support.workers import Deployment, open_deployment, until

ROOT = Path(__file__).parents[2]
LAST_VERSION = "a5e557f"  # the commit, and
LAST_SCHEMA = 11  # the newest migration that it has


@pytest.fixture(scope="module")
def last_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source code of the last version; skip if this clone does not have the commit."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", LAST_VERSION, "src"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"this clone has no commit {LAST_VERSION}: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("last")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture
def there(cluster: str, worker_id: str, tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, migrated_database(cluster, f"rolling_{worker_id}")) as made:
        yield made


def test_the_code_of_the_last_version_is_what_runs(last_version: Path) -> None:
    statement = "from outcrop.store import schema; print(schema.__file__, schema.newest_version())"
    ran = subprocess.run(
        [sys.executable, "-c", statement],
        env=os.environ | {"PYTHONPATH": str(last_version)},
        capture_output=True,
        text=True,
        check=True,
    )
    file, version = ran.stdout.split()
    assert Path(file).is_relative_to(last_version)
    assert int(version) == LAST_SCHEMA


def test_both_versions_work_side_by_side(there: Deployment, last_version: Path) -> None:
    promised = there.backend.sql(
        "SELECT max(compatible_from) FROM migrations WHERE version > %s", LAST_SCHEMA
    )
    assert promised[0][0] is not None
    if promised[0][0] > LAST_SCHEMA:
        pytest.skip(f"schema {newest_version()} promises to work from {promised[0][0]} on")
    # The worker starts on the earlier schema: it sees none of the later migrations until it runs.
    later = there.backend.sql(
        "DELETE FROM migrations WHERE version > %s RETURNING version, name, applied_at, compatible_from",
        LAST_SCHEMA,
    )
    earlier = there.worker(jobs=1, dead_after=20, PYTHONPATH=str(last_version))
    workers = "SELECT count(*) FROM procrastinate_workers"
    until(lambda: there.backend.sql(workers) == [(2,)], "the worker of the last version", 300)  # two queues
    for row in later:
        there.backend.sql("INSERT INTO migrations VALUES (%s, %s, %s, %s)", *row)
    first = there.start(TargetKind.REPOSITORY, there.repository("first"))
    assert there.wait_for_end(first, 300)["status"] == "completed"
    assert there.backend.sql("SELECT score_detail ->> 'version' FROM findings") == [("2",)], (
        "the worker of the last version has recorded it"
    )
    there.worker(jobs=1, dead_after=20)
    until(lambda: there.backend.sql(workers) == [(2 + 5,)], "the worker of this version", 300)
    names = there.organisation("acme", 6)
    there.git.delay = 0.2
    second = there.start(TargetKind.OWNER, "github:acme")
    assert there.wait_for_end(second, 300)["findings_new"] == 6
    assert earlier.poll() is None
    assert {(seen, events) for _, seen, events in there.recorded()} == {(1, 1)}
    assert len(there.recorded()) == 1 + len(names)
    assert all(check["ok"] for check in there.outcrop("doctor"))
