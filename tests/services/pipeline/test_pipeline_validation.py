"""Run scans that validate credentials: one verdict per credential, its score, and later checks."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.account import Account
from outcrop.net.http import open_http
from outcrop.scanner.risk.score import VERSION
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.revalidate import revalidate_due
from outcrop.services.pipeline.score import rescore_outdated
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.fake_https import FakeResponse, FakeServer, serve_https
from tests.support.pipeline import Pipeline, repository_spec, token

JSON = {"Content-Type": "application/json"}
ALIVE = FakeResponse(200, JSON | {"X-OAuth-Scopes": "repo, admin:org"}, b'{"login": "octo"}')
DEAD = FakeResponse(401, JSON, b'{"message": "Bad credentials"}')
DOWN = FakeResponse(500, JSON, b"{}")


class ValidatingPipeline:
    """A pipeline that checks credentials with a stand-in for GitHub."""

    def __init__(self, pipeline: Pipeline, issuer: FakeServer, context: RunContext) -> None:
        self.pipeline = pipeline
        self.issuer = issuer
        self.context = context

    def scan(self, account: Account, full_name: str) -> None:
        """Scan a repository."""
        self.pipeline.scan(account, repository_spec(full_name), self.context)

    def age(self, account: Account) -> None:
        """Make the verdicts look more than a day old."""
        self.pipeline.sql(
            "UPDATE verdicts SET checked_at = checked_at - interval '25 hours' WHERE account_id = %s",
            account.id,
        )

    def audit_details(self, account: Account, action: str) -> list[dict[str, Any]]:
        """Return the details of the audit lines of an action."""
        rows = self.pipeline.sql(
            "SELECT detail FROM audit WHERE account_id = %s AND action = %s ORDER BY id", account.id, action
        )
        return [detail for (detail,) in rows]


@pytest.fixture
def validating(pipeline: Pipeline, tmp_path: Path) -> Iterator[ValidatingPipeline]:
    """Yield a pipeline whose issuer accepts every token."""
    stack = AsyncExitStack()
    with serve_https(tmp_path, ("api.github.com",), lambda _: ALIVE) as issuer:
        http = pipeline.wait(stack.enter_async_context(open_http(issuer.egress)))
        yield ValidatingPipeline(
            pipeline,
            issuer,
            replace(
                pipeline.context, validator=Validator(http, ValidationMode.SAFE, requests_per_second=1000)
            ),
        )
        pipeline.wait(stack.aclose())


def test_a_live_credential_is_valid_and_has_its_services(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("live")})
    validating.scan(account, name)
    found = validating.pipeline.finding(account)
    assert (found["validation_status"], found["validation_confidence"]) == ("valid", "high")
    assert found["validation_detail"]["enabled_services"] == ["github_admin_org", "github_repo"]
    assert found["validation_detail"]["reason"] == "GitHub accepts the token"
    assert found["composite_score"] >= 90
    assert found["score_detail"]["parts"]["liveness"] == 40
    assert found["score_detail"]["reasons"] == [["checksum", 0.0]]  # the portal shows them
    ((_, sent),) = validating.pipeline.sql(
        "SELECT event, finding FROM outbox WHERE account_id = %s", account.id
    )
    assert sent["validation_status"] == "valid"
    assert "validation_detail" not in sent


def test_a_credential_at_many_places_is_checked_once(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {f"{n}.py": token("spread") for n in range(5)})
    validating.scan(account, name)
    assert len(validating.issuer.requests) == 1
    assert {found["validation_status"] for found in validating.pipeline.findings(account)} == {"valid"}


def test_a_credential_with_a_fresh_verdict_is_not_checked_and_with_an_old_one_is(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    hosted = validating.pipeline.add_repository(name, {"a.py": token("again")})
    validating.scan(account, name)
    hosted.push({"b.py": "more"})
    validating.scan(account, name)
    assert len(validating.issuer.requests) == 1
    validating.age(account)
    hosted.push({"c.py": "more"})
    validating.scan(account, name)
    assert len(validating.issuer.requests) == 2


def test_a_dead_credential_scores_at_most_fifteen(validating, account):
    validating.issuer.respond = lambda _: DEAD
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("dead")})
    validating.scan(account, name)
    found = validating.pipeline.finding(account)
    assert (found["validation_status"], found["composite_score"] <= 15) == ("invalid", True)


def test_the_verdict_is_error_if_the_issuer_is_down_and_the_event_says_unvalidated(validating, account):
    validating.issuer.respond = lambda _: DOWN
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("down")})
    validating.scan(account, name)
    assert validating.pipeline.finding(account)["validation_status"] == "error"
    ((sent,),) = validating.pipeline.sql("SELECT finding FROM outbox WHERE account_id = %s", account.id)
    assert sent["validation_status"] == "unvalidated"


def test_revalidation_updates_the_score_and_the_audit_trail(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("rotated"), "b.py": token("rotated")})
    validating.scan(account, name)
    validating.issuer.respond = lambda _: DEAD
    validating.age(account)
    assert validating.pipeline.wait(revalidate_due(validating.context)) >= 1
    assert [
        (finding["validation_status"], finding["composite_score"] <= 15)
        for finding in validating.pipeline.findings(account)
    ] == [("invalid", True)] * 2
    assert [(line["from"], line["to"]) for line in validating.audit_details(account, "finding.validate")] == [
        ("valid", "invalid")
    ] * 2
    assert validating.pipeline.wait(revalidate_due(validating.context)) == 0, "it has just been checked"


def test_credentials_of_closed_findings_are_not_revalidated(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("closed")})
    validating.scan(account, name)
    validating.pipeline.sql("UPDATE findings SET status = 'false_positive' WHERE account_id = %s", account.id)
    validating.age(account)
    before = len(validating.issuer.requests)
    validating.pipeline.wait(revalidate_due(validating.context))
    assert len(validating.issuer.requests) == before


def test_a_valid_verdict_reopens_a_finding_that_a_user_resolved(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    hosted = validating.pipeline.add_repository(name, {"a.py": token("back")})
    validating.scan(account, name)
    validating.pipeline.sql(
        "UPDATE findings SET status = 'resolved', resolved_at = now() - interval '1 minute', auto_resolved = false "
        "WHERE account_id = %s",
        account.id,
    )
    validating.age(account)
    hosted.push({"b.py": "more"})
    validating.scan(account, name)
    found = validating.pipeline.finding(account)
    assert (found["status"], found["resolved_at"]) == ("active", None)
    assert [event for event, _ in validating.pipeline.events(account)] == ["finding.new", "finding.new"]


def test_scores_of_another_version_are_computed_again(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("version")})
    validating.scan(account, name)
    score = validating.pipeline.finding(account)["composite_score"]
    validating.pipeline.sql(
        "UPDATE findings SET composite_score = 1, score_detail = score_detail || '{\"version\": 0}' "
        "WHERE account_id = %s",
        account.id,
    )
    assert validating.pipeline.wait(rescore_outdated(validating.context)) >= 1
    found = validating.pipeline.finding(account)
    assert (found["composite_score"], found["score_detail"]["version"]) == (score, VERSION)


def test_with_validation_off_nothing_is_checked_and_the_event_is_sent(validating, account):
    name = f"{validating.pipeline.add_owner()}/shop"
    validating.pipeline.add_repository(name, {"a.py": token("off")})
    validating.pipeline.scan(account, repository_spec(name))
    assert validating.issuer.requests == []
    assert validating.pipeline.finding(account)["validation_status"] == "unvalidated"
    assert [event for event, _ in validating.pipeline.events(account)] == ["finding.new"]
