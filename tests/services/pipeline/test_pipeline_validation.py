"""Runs that ask issuers: a verdict for each credential, once, and a score that follows it; and asking again later."""

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


class Asking:
    """A pipeline that asks a stand-in for GitHub about the credentials it finds."""

    def __init__(self, pipeline: Pipeline, stand_in: FakeServer, tools: RunContext) -> None:
        self.pipeline = pipeline
        self.stand_in = stand_in
        self.tools = tools

    def scan(self, account: Account, full_name: str) -> None:
        self.pipeline.scan(account, repository_spec(full_name), self.tools)

    def age(self, account: Account) -> None:
        """Let a day and more go by since the last check."""
        self.pipeline.sql(
            "UPDATE verdicts SET checked_at = checked_at - interval '25 hours' WHERE account_id = %s",
            account.id,
        )

    def audited(self, account: Account, action: str) -> list[dict[str, Any]]:
        found = self.pipeline.sql(
            "SELECT detail FROM audit WHERE account_id = %s AND action = %s ORDER BY id", account.id, action
        )
        return [detail for (detail,) in found]


@pytest.fixture
def asking(pipeline: Pipeline, tmp_path: Path) -> Iterator[Asking]:
    stack = AsyncExitStack()
    with serve_https(tmp_path, ("api.github.com",), lambda _: ALIVE) as stand_in:
        http = pipeline.wait(stack.enter_async_context(open_http(stand_in.egress)))
        yield Asking(
            pipeline,
            stand_in,
            replace(
                pipeline.context, validator=Validator(http, ValidationMode.SAFE, requests_per_second=1000)
            ),
        )
        pipeline.wait(stack.aclose())


def test_a_live_credential_is_valid_with_what_it_opens(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("live")})
    asking.scan(account, name)
    found = asking.pipeline.finding(account)
    assert (found["validation_status"], found["validation_confidence"]) == ("valid", "high")
    assert found["validation_detail"]["enabled_services"] == ["github_admin_org", "github_repo"]
    assert found["validation_detail"]["reason"] == "GitHub accepts the token"
    assert found["composite_score"] >= 90
    assert found["score_detail"]["parts"]["liveness"] == 40
    ((_, sent),) = asking.pipeline.sql("SELECT event, finding FROM outbox WHERE account_id = %s", account.id)
    assert sent["validation_status"] == "valid"
    assert "validation_detail" not in sent


def test_one_credential_in_many_places_is_asked_about_once(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {f"{n}.py": token("spread") for n in range(5)})
    asking.scan(account, name)
    assert len(asking.stand_in.requests) == 1
    assert {found["validation_status"] for found in asking.pipeline.findings(account)} == {"valid"}


def test_a_fresh_verdict_is_not_asked_for_again_and_an_old_one_is(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    hosted = asking.pipeline.add_repository(name, {"a.py": token("again")})
    asking.scan(account, name)
    hosted.push({"b.py": "more"})
    asking.scan(account, name)
    assert len(asking.stand_in.requests) == 1
    asking.age(account)
    hosted.push({"c.py": "more"})
    asking.scan(account, name)
    assert len(asking.stand_in.requests) == 2


def test_a_dead_credential_scores_at_most_fifteen(asking, account):
    asking.stand_in.respond = lambda _: DEAD
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("dead")})
    asking.scan(account, name)
    found = asking.pipeline.finding(account)
    assert (found["validation_status"], found["composite_score"] <= 15) == ("invalid", True)


def test_an_issuer_that_is_down_leaves_an_error_and_the_event_says_unvalidated(asking, account):
    asking.stand_in.respond = lambda _: DOWN
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("down")})
    asking.scan(account, name)
    assert asking.pipeline.finding(account)["validation_status"] == "error"
    ((sent,),) = asking.pipeline.sql("SELECT finding FROM outbox WHERE account_id = %s", account.id)
    assert sent["validation_status"] == "unvalidated"


def test_asking_again_updates_the_score_and_the_audit_trail(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("rotated"), "b.py": token("rotated")})
    asking.scan(account, name)
    asking.stand_in.respond = lambda _: DEAD
    asking.age(account)
    assert asking.pipeline.wait(revalidate_due(asking.tools)) >= 1
    assert [
        (one["validation_status"], one["composite_score"] <= 15) for one in asking.pipeline.findings(account)
    ] == [("invalid", True)] * 2
    assert [(line["from"], line["to"]) for line in asking.audited(account, "finding.validate")] == [
        ("valid", "invalid")
    ] * 2
    assert asking.pipeline.wait(revalidate_due(asking.tools)) == 0, "it has just been asked about"


def test_what_is_closed_is_not_asked_about_again(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("closed")})
    asking.scan(account, name)
    asking.pipeline.sql("UPDATE findings SET status = 'false_positive' WHERE account_id = %s", account.id)
    asking.age(account)
    before = len(asking.stand_in.requests)
    asking.pipeline.wait(revalidate_due(asking.tools))
    assert len(asking.stand_in.requests) == before


def test_a_check_that_proves_it_alive_reopens_what_a_person_resolved(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    hosted = asking.pipeline.add_repository(name, {"a.py": token("back")})
    asking.scan(account, name)
    asking.pipeline.sql(
        "UPDATE findings SET status = 'resolved', resolved_at = now() - interval '1 minute', auto_resolved = false WHERE account_id = %s",
        account.id,
    )
    asking.age(account)
    hosted.push({"b.py": "more"})
    asking.scan(account, name)
    found = asking.pipeline.finding(account)
    assert (found["status"], found["resolved_at"]) == ("active", None)
    assert [event for event, _ in asking.pipeline.events(account)] == ["finding.new", "finding.new"]


def test_scores_of_another_version_are_made_anew(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("version")})
    asking.scan(account, name)
    made = asking.pipeline.finding(account)["composite_score"]
    asking.pipeline.sql(
        "UPDATE findings SET composite_score = 1, score_detail = score_detail || '{\"version\": 0}' WHERE account_id = %s",
        account.id,
    )
    assert asking.pipeline.wait(rescore_outdated(asking.tools)) >= 1
    found = asking.pipeline.finding(account)
    assert (found["composite_score"], found["score_detail"]["version"]) == (made, VERSION)


def test_switched_off_nothing_is_asked_and_the_event_goes_out(asking, account):
    name = f"{asking.pipeline.add_owner()}/shop"
    asking.pipeline.add_repository(name, {"a.py": token("off")})
    asking.pipeline.scan(account, repository_spec(name))
    assert asking.stand_in.requests == []
    assert asking.pipeline.finding(account)["validation_status"] == "unvalidated"
    assert [event for event, _ in asking.pipeline.events(account)] == ["finding.new"]
