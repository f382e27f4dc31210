"""`outcrop scan --account`: a run of an account in the foreground, which workers go on with where it dies."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import migrated_database
from tests.support.rulesets import github_token
from tests.support.web_host import page, script, web_host
from tests.support.workers import COMMAND, Deployment, open_deployment, until

SLOW = 30.0  # seconds: longer than any test waits for one answer


@pytest.fixture
def there(cluster: str, worker_id: str, tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, migrated_database(cluster, f"foreground_{worker_id}")) as made:
        yield made


def scan(
    there: Deployment, *arguments: str, account: str = "acme", **more: str
) -> "subprocess.CompletedProcess[str]":
    command = [COMMAND, "scan", "--account", account, "--jobs", "1", *arguments]
    return subprocess.run(
        command,
        env=there.environment | more,
        cwd=there.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def newest(there: Deployment) -> dict[str, Any]:
    """Wait until there is a run; return the newest."""
    return until(lambda: found[0] if (found := there.tenant.get("/scans").json()["data"]) else None, "a run")


def looking(there: Deployment) -> str:
    """Wait until a run scans a source; return the run's id."""
    until(
        lambda: there.backend.sql("SELECT 1 FROM scan_sources WHERE status = 'running' AND source <> 'plan'"),
        "a look at a source",
    )
    return str(newest(there)["id"])


def test_every_kind_of_target_is_a_run_of_the_account(there: Deployment) -> None:
    (name,) = there.organisation("acme", 1)
    remote = there.repository("shop")
    folder = there.folder / "folder"
    folder.mkdir()
    (folder / "a.py").write_text(f"key = '{github_token('folder')}'\n")
    subprocess.run(
        ["git", "clone", "--quiet", str(there.folder / "repositories/shop.git"), str(there.folder / "local")],
        check=True,
    )
    routes = {"/": page('<script src="/app.js"></script>'), "/app.js": script(f'k="{github_token("site")}"')}
    (certificates := there.folder / "site").mkdir()
    with web_host(routes, tls=certificates) as site:
        ca = there.folder / "every.pem"
        ca.write_bytes(
            Path(there.environment["OUTCROP_EGRESS_CA_FILE"]).read_bytes() + (site.ca or Path()).read_bytes()
        )
        way = f"{there.environment['OUTCROP_EGRESS_CONNECT_TO']},site.example:443=127.0.0.1:{site.port}"
        targets = ["folder", "local", remote, "github:acme", "https://site.example/"]
        done = scan(there, "--json", *targets, OUTCROP_EGRESS_CONNECT_TO=way, OUTCROP_EGRESS_CA_FILE=str(ca))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    runs = json.loads(done.stdout)
    assert [run["target"] for run in runs] == [
        str(folder),
        str(there.folder / "local"),
        remote,
        "github:acme",
        "https://site.example/",
    ]
    assert {
        (run["status"], run["trigger"], run["error"], run["waiting"], run["findings_new"]) for run in runs
    } == {("completed", "cli", None, None, 1)}
    assert [run["type"] for run in runs] == ["github"] * 4 + ["scrape"]
    assert runs == sorted(there.tenant.get("/scans").json()["data"], key=runs.index), "the API tells the same"
    assert len(there.recorded()) == 5
    assert name in {place for place, _, _ in there.recorded()}
    assert there.jobs() == 0, "nothing is left to workers"
    until(lambda: not there.processes(), "every process to be gone")
    assert there.work_folders() == []


def test_a_single_run_is_one_record_and_a_failure_is_one_line(there: Deployment) -> None:
    there.repository("shop")
    shown = scan(there, "https://git.example/shop.git")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert ["status", "completed"] in [line.split() for line in shown.stdout.splitlines()]
    failed = scan(there, "--json", "https://git.example/missing.git")
    assert failed.returncode == 2
    run = json.loads(failed.stdout)
    assert run["status"] == "failed"
    assert failed.stderr == f"outcrop: https://git.example/missing.git: {run['error']}\n"
    assert run == newest(there)


def test_what_cannot_be_begun_is_one_line_and_no_run(there: Deployment) -> None:
    for account, target, words in (
        ("nobody", "https://git.example/shop.git", "nobody"),
        ("acme", "nowhere", "nowhere: no such file or folder"),
        ("acme", "https://name:password@git.example/shop.git", "without user name and password"),
    ):
        done = scan(there, "--json", target, account=account)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert there.tenant.get("/scans").json()["data"] == []


def test_a_killed_commands_remote_run_is_ended_by_a_worker(there: Deployment) -> None:
    there.organisation("acme", 2)
    there.git.delay = SLOW
    command = there.popen("scan", "--account", "acme", "--jobs", "2", "github:acme")
    until(lambda: len(there.git.requests) == 2, "the command to be at it")
    scan_id = looking(there)
    command.kill()
    there.git.delay = 0
    there.worker(jobs=2)
    run = there.wait_for_end(scan_id)
    assert (run["status"], run["findings_new"], run["progress"]["targets"]) == ("completed", 2, 2)
    assert [(seen, events) for _, seen, events in there.recorded()] == [(1, 1), (1, 1)]


def test_a_killed_commands_run_of_a_folder_has_failed(there: Deployment) -> None:
    (there.folder / "folder").mkdir()
    command = there.popen("scan", "--account", "acme", "folder")
    scan_id = looking(there)
    command.kill()
    there.worker()
    run = there.wait_for_end(scan_id)
    assert (run["status"], run["error"]) == ("failed", "the command that ran it has died")


def test_ctrl_c_leaves_the_run_to_a_worker(there: Deployment) -> None:
    there.organisation("acme", 3)
    there.git.delay = SLOW
    command = there.popen("scan", "--account", "acme", "--jobs", "2", "github:acme")
    until(lambda: len(there.git.requests) == 2, "the command to be at it")
    scan_id = looking(there)
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130
    assert there.log(command) == ""
    assert there.status(scan_id) == "interrupted"
    assert list(there.sources(scan_id).values()) == [("queued", 0, None)] * 3, "untried"
    until(lambda: not there.processes(), "every process to be gone")
    there.git.delay = 0
    there.worker(jobs=2)
    assert there.wait_for_end(scan_id)["findings_new"] == 3
