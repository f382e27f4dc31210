"""Test what a run of a push writes to pull requests: a status and a comment, never a value."""

import json
from dataclasses import replace
from typing import Any

import pytest
import structlog

from outcrop.domain.account import Account
from outcrop.domain.scan import ScanRun, ScanStatus
from outcrop.domain.secret import Secret
from outcrop.services.pipeline.enqueue import REPORT_TASK
from outcrop.services.pipeline.pushes.pull_requests import describe, report_to_pull_requests
from tests.services.pipeline.test_pushes import deliver, execute, push_to, runs
from tests.support.github_host import error
from tests.support.pipeline import Pipeline, ServedRepository, repository_spec, token

TOKEN = "made-up-writer"
BOTH = {"pr_status": True, "pr_comment": True}


@pytest.fixture
def shop(pipeline: Pipeline) -> ServedRepository:
    """Return a repository with one open pull request, number 5, of the branch `fix`."""
    owner = pipeline.add_owner()
    shop = pipeline.add_repository(f"{owner}/shop", {"readme.md": "hello\n"})
    pipeline.hub.tokens[TOKEN] = owner
    return shop


def add_target(
    pipeline: Pipeline,
    account: Account,
    shop: ServedRepository,
    credential: str | None = TOKEN,
    **options: bool,
) -> None:
    plain = repository_spec(shop.full_name)
    spec = replace(plain, options=plain.options | options)
    pipeline.add_target(account, spec, credential)


def push(pipeline: Pipeline, account: Account, shop: ServedRepository, files: dict[str, str | bytes]) -> str:
    """Push to the branch of the pull request, and deliver the push; return the commit."""
    main = shop.repo.tip()
    tip = shop.repo.tip("fix") or main
    commit = shop.push({"readme.md": "hello\n", **files}, branch="fix", parents=[tip or ""])
    commits = shop.repo.git("rev-list", "--reverse", f"{main}..fix").split()
    request = {"number": 5, "state": "open", "head": {"sha": commit}, "commits": commits}
    closed = {"number": 4, "state": "closed", "head": {"sha": commit}, "commits": commits}
    pipeline.hub.pulls[shop.full_name] = [closed, request]
    assert deliver(pipeline, account, push_to(shop.full_name, branches=("fix",), after=commit)) == 1
    return commit


def report(pipeline: Pipeline, account: Account, **changes: Any) -> tuple[ScanRun, list[tuple[str, Any]]]:
    """Execute the newest run and its job; return the run, and what was sent to GitHub: (path, body)."""
    run = execute(pipeline, account, runs(pipeline, account)[-1])
    jobs = pipeline.sql(
        "DELETE FROM procrastinate_jobs WHERE task_name = %s AND args ->> 'scan_id' = %s RETURNING args",
        *(REPORT_TASK, str(run.id)),
    )
    pipeline.hub.requests.clear()
    context = replace(pipeline.context, base_url="https://outcrop.example", **changes)
    for _ in jobs:
        pipeline.wait(report_to_pull_requests(context, account.id, run.id))
    posted = [request for request in pipeline.hub.requests if request.method == "POST"]
    return run, [(request.path.partition("/shop")[2], json.loads(request.body)) for request in posted]


def test_a_push_to_a_pull_request_sets_a_status_and_adds_a_comment(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    add_target(pipeline, account, shop, **BOTH)
    leaks = [token("pull 1"), token("pull 2")]
    first = push(pipeline, account, shop, {"a.env": f"a = {leaks[0]}\nb = {leaks[1]}\nc = {leaks[0]}\n"})
    run, sent = report(pipeline, account)
    url = f"https://outcrop.example/scans/{run.id}"
    (path, status), (comment_path, comment) = sent
    assert path == f"/statuses/{first}"
    assert status == {
        "state": "failure",
        "context": "outcrop",
        "description": "2 credentials found",
        "target_url": url,
    }
    assert comment_path == "/issues/5/comments"
    assert "2 credentials found" in comment["body"]
    assert url in comment["body"]
    assert not any(leak in repr(sent) for leak in leaks)
    # A commit that removes the credentials leaves them in the history. So does a forced push, at the host.
    second = push(pipeline, account, shop, {"a.env": "nothing\n"})
    _, sent = report(pipeline, account)
    assert [path for path, _ in sent] == [f"/statuses/{second}"]  # the comment has said it
    assert sent[0][1]["description"] == "2 credentials found"
    shop.repo.delete_ref("refs/heads/fix")
    forced = push(pipeline, account, shop, {"b.env": "nothing else\n"})
    _, sent = report(pipeline, account)
    assert sent[0][0] == f"/statuses/{forced}"
    assert sent[0][1]["state"] == "failure"


def test_a_clean_pull_request_gets_a_good_status_and_no_comment(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    add_target(pipeline, account, shop, **BOTH)
    shop.push({"old.env": f"a = {token('on main')}\n"})  # not of the pull request
    push(pipeline, account, shop, {"a.txt": "hello\n"})
    _, sent = report(pipeline, account)
    assert [(body["state"], body["description"]) for _, body in sent] == [("success", "no credentials found")]


def test_nothing_is_written_unless_the_target_asks_for_it(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    add_target(pipeline, account, shop)
    push(pipeline, account, shop, {"a.env": f"a = {token('off')}\n"})
    run, _ = report(pipeline, account)
    assert run.findings_new == 1
    assert pipeline.hub.requests == []


def test_nothing_is_written_with_the_operators_token(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    add_target(pipeline, account, shop, credential=None, **BOTH)
    push(pipeline, account, shop, {"a.env": f"a = {token('operator')}\n"})
    with structlog.testing.capture_logs() as logs:
        _, sent = report(pipeline, account, github_token=Secret(TOKEN))
    assert sent == []
    assert [entry["missing"] for entry in logs if entry["event"] == "pull_request_not_marked"] == [
        "credential of the target"
    ]


def test_a_refusal_of_the_host_is_logged_and_the_run_is_complete(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    add_target(pipeline, account, shop, **BOTH)
    push(pipeline, account, shop, {"a.env": f"a = {token('refused')}\n"})
    refusal = error(403, "Resource not accessible by personal access token")
    refusal.path = "/statuses/"
    pipeline.hub.faults.append(refusal)
    with structlog.testing.capture_logs() as logs:
        run, _ = report(pipeline, account)
    assert run.status is ScanStatus.COMPLETED
    (line,) = [entry for entry in logs if entry["event"] == "pull_request_not_marked"]
    assert "answered 403" in line["error"]


def test_the_text_of_a_status() -> None:
    texts = [describe(found) for found in (0, 1, 2)]
    assert texts == ["no credentials found", "1 credential found", "2 credentials found"]
