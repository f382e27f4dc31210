"""Stored credentials are validated again daily and on request, and erased after their finding is closed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError, NotFoundError, OperatorError
from outcrop.net.http import open_http
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import request_validation
from outcrop.services.pipeline.maintenance import ERASE_AFTER, erase_secrets
from outcrop.services.pipeline.revalidate import revalidate_due, revalidate_finding
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.worker.queues import build_app, run_queues
from tests.support.fake_https import FakeResponse, FakeServer, serve_https
from tests.support.pipeline import Pipeline, repository_spec, token

JSON = {"Content-Type": "application/json"}
ALIVE = FakeResponse(200, JSON | {"X-OAuth-Scopes": "repo"}, b'{"login": "octo"}')
DEAD = FakeResponse(401, JSON, b'{"message": "Bad credentials"}')


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """Yield a stand-in for GitHub that accepts every token."""
    with serve_https(tmp_path_factory.mktemp("issuer"), ("api.github.com",), lambda _: ALIVE) as running:
        yield running


@pytest.fixture
def context(pipeline: Pipeline, issuer: FakeServer) -> Iterator[RunContext]:
    """Yield a context that validates with the stand-in; no other credential is due."""
    stack = AsyncExitStack()
    issuer.requests.clear()
    issuer.respond = lambda _: ALIVE
    pipeline.sql("TRUNCATE procrastinate_jobs, verdicts CASCADE")  # revalidation works for all accounts
    http = pipeline.wait(stack.enter_async_context(open_http(issuer.egress)))
    yield replace(pipeline.context, validator=Validator(http, ValidationMode.SAFE, requests_per_second=1000))
    pipeline.wait(stack.aclose())


ScanFiles = Callable[..., dict[str, Any]]


@pytest.fixture
def scan_files(pipeline: Pipeline, account: Account, context: RunContext) -> ScanFiles:
    """Return a function that scans a repository with these files and returns the findings by path."""

    def scan(files: dict[str, str], own_context: RunContext | None = None) -> dict[str, Any]:
        name = f"{pipeline.add_owner()}/shop"
        pipeline.add_repository(name, dict(files))
        pipeline.scan(account, repository_spec(name), own_context or context)
        return {finding["file_path"]: finding for finding in pipeline.findings(account)}

    return scan


def audit_lines(pipeline: Pipeline, account: Account, *actions: str) -> list[tuple[Any, ...]]:
    """Return the audit lines of these actions, oldest first."""
    return pipeline.sql(
        "SELECT action, actor, target, outcome, detail FROM audit "
        "WHERE account_id = %s AND action = ANY(%s) ORDER BY id",
        account.id,
        list(actions),
    )


# --- at a user's request


def test_a_requested_check_updates_all_findings_of_the_credential(
    pipeline, account, context, issuer, scan_files
):
    findings = scan_files({"a.py": token("twice"), "b.py": token("twice"), "c.py": token("another")})
    issuer.respond = lambda _: DEAD
    issuer.requests.clear()
    checked = pipeline.wait(
        revalidate_finding(context, account.id, findings["a.py"]["id"], by="ada@example.com")
    )
    assert (checked.validation_status, checked.composite_score <= 15) == ("invalid", True)
    assert len(issuer.requests) == 1, "although the last verdict is fresh"
    after = {finding["file_path"]: finding for finding in pipeline.findings(account)}
    assert {path: finding["validation_status"] for path, finding in after.items()} == {
        "a.py": "invalid",
        "b.py": "invalid",
        "c.py": "valid",
    }
    assert after["b.py"]["score_detail"]["parts"]["liveness"] == 0
    lines = audit_lines(pipeline, account, "finding.revalidate", "finding.validate")
    assert lines[0] == ("finding.revalidate", "ada@example.com", str(findings["a.py"]["id"]), "ok", {})
    changes = [(actor, target, detail["from"], detail["to"]) for _, actor, target, _, detail in lines[1:]]
    assert sorted(changes) == sorted(
        ("ada@example.com", str(findings[path]["id"]), "valid", "invalid") for path in ("a.py", "b.py")
    )


def test_a_request_without_a_new_verdict_has_an_audit_line_too(pipeline, account, context, scan_files):
    findings = scan_files({"a.py": token("same")})
    pipeline.wait(revalidate_finding(context, account.id, findings["a.py"]["id"], by="ada"))
    assert [line[0] for line in audit_lines(pipeline, account, "finding.revalidate", "finding.validate")] == [
        "finding.revalidate"
    ]


def test_a_credential_that_cannot_be_checked_is_an_error_with_the_reason(
    pipeline, account, context, scan_files
):
    findings = scan_files({"a.py": token("unknown")})
    id_ = findings["a.py"]["id"]
    with pytest.raises(NotFoundError):
        pipeline.wait(revalidate_finding(context, account.id, uuid4(), by="ada"))
    with pytest.raises(NotFoundError):
        pipeline.wait(revalidate_finding(context, pipeline.create_account().id, id_, by="ada"))
    with pytest.raises(OperatorError, match="switched off"):
        pipeline.wait(revalidate_finding(pipeline.context, account.id, id_, by="ada"))
    pipeline.sql("UPDATE findings SET rule = 'gone' WHERE id = %s", id_)
    with pytest.raises(BadInputError, match="no rule"):
        pipeline.wait(revalidate_finding(context, account.id, id_, by="ada"))
    pipeline.sql("UPDATE findings SET secret_box = NULL WHERE id = %s", id_)
    with pytest.raises(BadInputError, match="not stored"):
        pipeline.wait(revalidate_finding(context, account.id, id_, by="ada"))


def request(pipeline: Pipeline, account: Account, finding_id: UUID, note: str | None = None) -> None:
    """Request a validation, as the API and the portal do."""

    async def work() -> None:
        async with pipeline.context.pool.connection() as db, db.transaction():
            await request_validation(
                db, pipeline.context.keys, account.id, finding_id, note=note, by="ada", moment=now()
            )

    pipeline.wait(work())


def count_jobs(pipeline: Pipeline) -> int:
    """Return the number of queued and running jobs."""
    return int(pipeline.sql("SELECT count(*) FROM procrastinate_jobs")[0][0])


def run_queued_jobs(pipeline: Pipeline, context: RunContext) -> None:
    """Run jobs as a worker does, until none is queued."""

    async def work() -> None:
        queues = asyncio.create_task(run_queues(build_app(pipeline.runtime, context), 1, 20))
        for _ in range(400):
            if not count_jobs(pipeline):
                break
            await asyncio.sleep(0.05)
        queues.cancel()
        await asyncio.gather(queues, return_exceptions=True)

    pipeline.wait(work())
    assert count_jobs(pipeline) == 0


def test_two_requests_are_one_job_of_a_worker(pipeline, account, context, issuer, scan_files):
    id_ = scan_files({"a.py": token("queued")})["a.py"]["id"]
    issuer.respond = lambda _: DEAD
    issuer.requests.clear()
    request(pipeline, account, id_)
    request(pipeline, account, id_)
    assert count_jobs(pipeline) == 1
    run_queued_jobs(pipeline, context)
    assert pipeline.finding(account)["validation_status"] == "invalid"
    assert len(issuer.requests) == 1
    lines = audit_lines(pipeline, account, "finding.revalidate", "finding.validate")
    assert [(line[0], line[1]) for line in lines] == [("finding.revalidate", "ada")] * 2 + [
        ("finding.validate", "ada")
    ]


def test_the_note_of_a_request_is_in_the_audit_trail_without_the_credential(
    pipeline, account, context, scan_files
):
    finding = scan_files({"a.py": token("noted")})["a.py"]
    request(pipeline, account, finding["id"], f"was {token('noted')} rotated?")
    ((*_, detail),) = audit_lines(pipeline, account, "finding.revalidate")
    assert detail == {"note": f"was {finding['matched_text']} rotated?"}
    run_queued_jobs(pipeline, context)


def test_a_request_that_fails_has_an_audit_line_with_the_reason(pipeline, account, context, scan_files):
    id_ = scan_files({"a.py": token("unmet")})["a.py"]["id"]
    request(pipeline, account, id_)
    pipeline.sql("UPDATE findings SET secret_box = NULL WHERE id = %s", id_)
    with pytest.raises(BadInputError, match="not stored"):
        request(pipeline, account, id_)
    run_queued_jobs(pipeline, context)
    _, (_, _, _, outcome, detail) = audit_lines(pipeline, account, "finding.revalidate")
    assert (outcome, "not stored" in detail["reason"]) == ("failed", True)


# --- daily


def age(pipeline: Pipeline, account: Account, by: timedelta) -> None:
    """Make the verdicts of an account look older."""
    pipeline.sql("UPDATE verdicts SET checked_at = checked_at - %s WHERE account_id = %s", by, account.id)


def test_a_credential_without_a_decision_is_checked_again_sooner(
    pipeline, account, context, issuer, scan_files
):
    issuer.respond = lambda _: FakeResponse(503)
    scan_files({"a.py": token("down")})
    assert pipeline.finding(account)["validation_status"] == "error"
    issuer.respond = lambda _: ALIVE
    assert pipeline.wait(revalidate_due(context)) == 0
    age(pipeline, account, timedelta(hours=2))
    assert pipeline.wait(revalidate_due(context)) == 1
    assert pipeline.finding(account)["validation_status"] == "valid"
    age(pipeline, account, timedelta(hours=2))
    assert pipeline.wait(revalidate_due(context)) == 0, "a decision holds for a day"


def test_credentials_found_with_validation_off_are_checked_once_it_is_on(
    pipeline, account, context, issuer, scan_files
):
    scan_files({"a.py": token("later")}, pipeline.context)
    assert (pipeline.finding(account)["validation_status"], issuer.requests) == ("unvalidated", [])
    assert "checked_at" not in pipeline.finding(account)["validation_detail"]
    assert pipeline.wait(revalidate_due(pipeline.context)) == 0
    assert pipeline.wait(revalidate_due(context)) == 1
    assert pipeline.finding(account)["validation_status"] == "valid"


def test_a_credential_of_a_deleted_rule_does_not_block_the_others(
    pipeline, account, context, issuer, scan_files
):
    findings = scan_files({f"{n}.py": token(f"many {n}") for n in range(3)})
    pipeline.sql("UPDATE findings SET rule = 'gone' WHERE id = %s", findings["1.py"]["id"])
    age(pipeline, account, timedelta(days=2))
    issuer.requests.clear()
    assert pipeline.wait(asyncio.wait_for(revalidate_due(context), 60)) == 2
    assert len(issuer.requests) == 2


def test_a_damaged_credential_does_not_stop_the_check_of_the_others(
    pipeline, account, context, issuer, scan_files
):
    findings = scan_files({f"{n}.py": token(f"damaged {n}") for n in range(3)})
    pipeline.sql("UPDATE findings SET secret_box = 'damaged' WHERE id = %s", findings["1.py"]["id"])
    age(pipeline, account, timedelta(days=2))
    issuer.requests.clear()
    with capture_logs() as logs:
        assert pipeline.wait(asyncio.wait_for(revalidate_due(context), 60)) == 2
    assert len(issuer.requests) == 2
    assert [(line["event"], line["account"], line["finding"]) for line in logs] == [
        ("credential_damaged", account.id, str(findings["1.py"]["id"]))
    ]


def test_two_workers_do_not_check_twice(pipeline, account, context, issuer, scan_files):
    scan_files({f"{n}.py": token(f"shared {n}") for n in range(5)})
    age(pipeline, account, timedelta(days=2))
    issuer.requests.clear()
    issuer.respond = lambda _: replace(ALIVE, delay=0.1)

    async def both() -> list[int]:
        return list(await asyncio.gather(revalidate_due(context), revalidate_due(context)))

    assert sorted(pipeline.wait(both())) == [0, 5]
    assert len(issuer.requests) == 5


def test_a_new_verdict_in_a_run_updates_all_findings_of_the_credential(
    pipeline, account, context, issuer, scan_files
):
    scan_files({"a.py": token("moved")})
    age(pipeline, account, timedelta(days=2))
    issuer.respond = lambda _: DEAD
    findings = scan_files({"b.py": token("moved")})  # another repository
    assert {path: finding["validation_status"] for path, finding in findings.items()} == {
        "a.py": "invalid",
        "b.py": "invalid",
    }
    ((_, actor, target, _, change),) = audit_lines(pipeline, account, "finding.validate")
    assert (actor, target, change["from"], change["to"]) == (
        "scan",
        str(findings["a.py"]["id"]),
        "valid",
        "invalid",
    )


# --- erasing


def close(pipeline: Pipeline, account: Account, status: str, *, ago: timedelta) -> None:
    """Set the status of the findings, and move the time of closing into the past."""
    pipeline.sql("UPDATE findings SET status = %s WHERE account_id = %s", status, account.id)
    pipeline.sql("UPDATE findings SET closed_at = closed_at - %s WHERE account_id = %s", ago, account.id)


def has_box(pipeline: Pipeline, account: Account) -> bool:
    """Whether the credential of the only finding is stored."""
    return pipeline.finding(account)["secret_box"] is not None


@pytest.mark.parametrize(
    ("status", "ago", "erased"),
    [
        ("false_positive", ERASE_AFTER + timedelta(hours=1), True),
        ("customer_restricted", ERASE_AFTER + timedelta(hours=1), True),
        ("false_positive", ERASE_AFTER - timedelta(hours=1), False),
        ("stale", timedelta(days=400), False),
        ("active", timedelta(days=400), False),
    ],
)
def test_a_credential_is_erased_some_time_after_its_finding_was_closed(
    pipeline, account, context, scan_files, status, ago, erased
):
    scan_files({"a.py": token(f"{status} {ago}")})
    close(pipeline, account, status, ago=ago)
    pipeline.wait(erase_secrets(context))
    assert has_box(pipeline, account) is not erased
    lines = audit_lines(pipeline, account, "secrets.erase")
    assert [(actor, detail) for _, actor, _, _, detail in lines] == (
        [("upkeep", {"findings": 1})] if erased else []
    )
    assert pipeline.wait(erase_secrets(context)) == 0


def test_the_time_of_closing_is_kept_until_the_status_changes(pipeline, account, context, scan_files):
    scan_files({"a.py": token("closing")})
    pipeline.sql(
        "UPDATE findings SET status = 'resolved', resolved_at = now() - interval '90 days', auto_resolved = false "
        "WHERE account_id = %s",
        account.id,
    )
    closed = pipeline.finding(account)["closed_at"]
    assert now() - closed > timedelta(days=89)
    pipeline.sql("UPDATE findings SET seen_count = 9 WHERE account_id = %s", account.id)
    assert pipeline.finding(account)["closed_at"] == closed
    pipeline.sql(
        "UPDATE findings SET status = 'active', resolved_at = NULL, auto_resolved = NULL WHERE account_id = %s",
        account.id,
    )
    assert pipeline.finding(account)["closed_at"] is None


@pytest.mark.parametrize(("status", "kept"), [("resolved", True), ("false_positive", False)])
def test_an_erased_credential_that_is_seen_again_is_stored_only_if_its_finding_reopens(
    pipeline, account, context, status, kept
):
    name = f"{pipeline.add_owner()}/shop"
    hosted = pipeline.add_repository(name, {"a.py": token(f"again {status}")})
    pipeline.scan(account, repository_spec(name), context)
    resolved = (
        "resolved_at = now() - interval '90 days', auto_resolved = true," if status == "resolved" else ""
    )
    pipeline.sql(f"UPDATE findings SET {resolved} status = %s WHERE account_id = %s", status, account.id)
    pipeline.sql(
        "UPDATE findings SET closed_at = now() - interval '90 days' WHERE account_id = %s", account.id
    )
    pipeline.wait(erase_secrets(context))
    assert not has_box(pipeline, account)
    hosted.push({"a.py": token(f"again {status}"), "b.py": "more"})
    pipeline.scan(account, repository_spec(name), context)
    assert (pipeline.finding(account)["status"] == "active", has_box(pipeline, account)) == (kept, kept)


def test_with_keeping_off_no_credential_is_stored_and_earlier_ones_are_erased(
    pipeline, account, context, scan_files
):
    scan_files({"a.py": token("before")})
    with pipeline.keep_no_secrets():
        scan_files({"b.py": token("none")})
    assert {
        finding["file_path"]: finding["secret_box"] is None for finding in pipeline.findings(account)
    } == {
        "a.py": False,
        "b.py": True,
    }
    pipeline.wait(erase_secrets(context))
    assert any(finding["secret_box"] for finding in pipeline.findings(account)), "the database's value counts"
    with pipeline.keep_no_secrets():
        assert pipeline.wait(erase_secrets(context)) >= 1
    assert {finding["secret_box"] for finding in pipeline.findings(account)} == {None}
