"""A verdict belongs to a value and to the host or key id that was sent with it."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outcrop.domain.account import Account
from outcrop.net.http import open_http
from outcrop.scanner.rules.example_templates import expand_template
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.revalidate import revalidate_due, revalidate_finding
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https
from tests.support.pipeline import Pipeline, repository_spec

OWN, OTHER = "gitlab.corp.example", "gitlab.other.example"
JSON = {"Content-Type": "application/json"}
ALIVE = FakeResponse(200, JSON, b'{"id": 4, "scopes": ["api"]}')
UNKNOWN = FakeResponse(401, JSON, b'{"message": "401 Unauthorized"}')


def only_the_own_host(request: ReceivedRequest) -> FakeResponse:
    return ALIVE if request.host == OWN else UNKNOWN


def beside(host: str, seed: str) -> str:
    """Return a line with the token of a seed beside a host."""
    return f"git clone https://oauth2:{expand_template('glpat-{{base62 20}}', seed)}@{host}/acme/web.git\n"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """Yield two GitLab hosts. Only OWN knows the tokens."""
    with serve_https(tmp_path_factory.mktemp("hosts"), (OWN, OTHER), only_the_own_host) as running:
        yield running


@pytest.fixture
def context(pipeline: Pipeline, hosts: FakeServer) -> Iterator[RunContext]:
    """Yield a context that validates with the two hosts; no other credential is due."""
    stack = AsyncExitStack()
    hosts.requests.clear()
    hosts.respond = only_the_own_host
    pipeline.sql("TRUNCATE procrastinate_jobs, verdicts CASCADE")
    http = pipeline.wait(stack.enter_async_context(open_http(hosts.egress)))
    yield replace(pipeline.context, validator=Validator(http, ValidationMode.FULL, requests_per_second=1000))
    pipeline.wait(stack.aclose())


class Repositories:
    """Repositories of an account that are scanned with validation."""

    def __init__(self, pipeline: Pipeline, account: Account, context: RunContext) -> None:
        self.pipeline = pipeline
        self.account = account
        self.context = context

    def scan(self, path: str, content: str) -> None:
        """Scan a new repository with one file."""
        name = f"{self.pipeline.add_owner()}/shop"
        self.pipeline.add_repository(name, {path: content})
        self.pipeline.scan(self.account, repository_spec(name), self.context)

    def findings(self) -> dict[str, dict[str, Any]]:
        """Return the findings by path."""
        return {finding["file_path"]: finding for finding in self.pipeline.findings(self.account)}

    def statuses(self) -> dict[str, str]:
        """Return the validation status of each finding by path."""
        return {path: finding["validation_status"] for path, finding in self.findings().items()}

    def age(self) -> None:
        """Make all verdicts look two days older."""
        self.pipeline.sql(
            "UPDATE verdicts SET checked_at = checked_at - %s WHERE account_id = %s",
            timedelta(days=2),
            self.account.id,
        )

    def revalidate(self) -> int:
        self.age()
        return self.pipeline.wait(revalidate_due(self.context))


@pytest.fixture
def repositories(pipeline: Pipeline, account: Account, context: RunContext) -> Repositories:
    return Repositories(pipeline, account, context)


def test_a_copy_beside_another_host_does_not_make_the_finding_invalid(
    repositories: Repositories, hosts: FakeServer
) -> None:
    repositories.scan("own.sh", beside(OWN, "copied"))
    repositories.age()
    repositories.scan("copy.sh", beside(OTHER, "copied"))
    assert {request.host for request in hosts.requests} == {OWN, OTHER}
    assert repositories.statuses() == {"own.sh": "valid", "copy.sh": "valid"}
    assert repositories.revalidate() == 2
    assert repositories.statuses() == {"own.sh": "valid", "copy.sh": "valid"}


def test_a_copy_that_is_scanned_first_does_not_hide_that_the_credential_is_valid(
    repositories: Repositories,
) -> None:
    repositories.scan("copy.sh", beside(OTHER, "first"))
    assert repositories.statuses() == {"copy.sh": "invalid"}
    repositories.scan("own.sh", beside(OWN, "first"))
    assert repositories.statuses() == {"own.sh": "valid", "copy.sh": "valid"}


def test_the_newest_verdict_counts_once_none_is_valid(repositories: Repositories, hosts: FakeServer) -> None:
    repositories.scan("own.sh", beside(OWN, "revoked"))
    repositories.scan("copy.sh", beside(OTHER, "revoked"))
    hosts.respond = lambda _: UNKNOWN
    assert repositories.revalidate() == 2
    assert repositories.statuses() == {"own.sh": "invalid", "copy.sh": "invalid"}


def test_a_verdict_whose_place_is_closed_does_not_count(
    repositories: Repositories, pipeline: Pipeline, hosts: FakeServer
) -> None:
    repositories.scan("own.sh", beside(OWN, "closed"))
    repositories.scan("copy.sh", beside(OTHER, "closed"))
    own = repositories.findings()["own.sh"]["id"]
    pipeline.sql("UPDATE findings SET status = 'false_positive' WHERE id = %s", own)
    assert repositories.revalidate() == 1
    assert repositories.statuses()["copy.sh"] == "invalid"


def test_a_check_on_request_of_one_copy_keeps_the_verdict_of_the_other(
    repositories: Repositories, pipeline: Pipeline, account: Account, context: RunContext
) -> None:
    repositories.scan("own.sh", beside(OWN, "asked"))
    repositories.scan("copy.sh", beside(OTHER, "asked"))
    id_ = repositories.findings()["copy.sh"]["id"]
    checked = pipeline.wait(revalidate_finding(context, account.id, id_, by="ada"))
    assert checked.validation_status == "valid"
    assert repositories.statuses() == {"own.sh": "valid", "copy.sh": "valid"}


def test_findings_from_before_the_upgrade_get_their_verdict_keys_with_the_first_check(
    repositories: Repositories, pipeline: Pipeline, account: Account
) -> None:
    repositories.scan("own.sh", beside(OWN, "upgraded"))
    repositories.scan("copy.sh", beside(OTHER, "upgraded"))
    keys = {path: finding["verdict_key"] for path, finding in repositories.findings().items()}
    assert len(set(keys.values())) == 2
    # As before the upgrade: one verdict on the value, that of the copy, and no keys.
    pipeline.sql("UPDATE findings SET verdict_key = NULL WHERE account_id = %s", account.id)
    pipeline.sql(
        "DELETE FROM verdicts WHERE account_id = %s AND fingerprint = %s", account.id, keys["own.sh"]
    )
    pipeline.sql(
        "UPDATE verdicts SET fingerprint = substr(fingerprint, 1, 32) WHERE account_id = %s", account.id
    )
    pipeline.sql("UPDATE findings SET validation_status = 'invalid' WHERE account_id = %s", account.id)
    assert repositories.revalidate() == 1
    assert {path: f["verdict_key"] for path, f in repositories.findings().items()} == keys
    repositories.scan("third.sh", beside(OWN, "upgraded"))
    assert set(repositories.statuses().values()) == {"valid"}
