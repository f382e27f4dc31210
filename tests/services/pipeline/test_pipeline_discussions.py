"""Scan issues, pull requests and comments: recorded findings, rescans, and what counts as gone."""

from typing import Any

import pytest

from outcrop.domain.account import Account
from outcrop.domain.scan import ScanRun, ScanStatus
from outcrop.domain.target import TargetSpec
from outcrop.services.pipeline import discussion_source
from tests.support.github_host import Fault, Json, error
from tests.support.pipeline import Pipeline, owner_spec, token


class Talk:
    """A repository without commits, and the scans of what people wrote in it."""

    def __init__(self, pipeline: Pipeline, account: Account) -> None:
        self.pipeline, self.account = pipeline, account
        self.owner = pipeline.add_owner()
        self.name = f"{self.owner}/shop"
        self.repository = pipeline.hub.add_repo(self.name, commits=(), size=0, pushed_at=None)
        self.spec = owner_spec(self.owner, discussions=True)

    def write(self, listing: str, number: int, body: str, **fields: Any) -> Json:
        return self.pipeline.hub.add_text(self.name, listing, number, body, **fields)

    def scan(self, spec: TargetSpec | None = None) -> ScanRun:
        return self.pipeline.scan(self.account, spec or self.spec)

    @property
    def statuses(self) -> dict[str, str]:
        return {row["file_path"]: row["status"] for row in self.pipeline.findings(self.account)}


@pytest.fixture
def talk(pipeline: Pipeline, account: Account) -> Talk:
    return Talk(pipeline, account)


def test_issues_and_comments_are_findings_with_their_addresses_and_authors(
    talk: Talk, pipeline: Pipeline, account: Account
) -> None:
    issue = talk.write("issues", 12, f"it says\nkey {token(1)}")
    comment = talk.write("issues/comments", 12, token(2))
    review = talk.write("pulls/comments", 13, token(3))
    run = talk.scan()
    assert (run.status, run.coverage_gaps, run.findings_new) == (ScanStatus.COMPLETED, (), 3)
    found = pipeline.findings(account)
    assert {row["file_path"]: row["source_url"] for row in found} == {
        "issues/12": issue["html_url"],
        f"issues/12/comments/{comment['id']}": comment["html_url"],
        f"pulls/13/comments/{review['id']}": review["html_url"],
    }
    first = found[0]
    assert (
        first["source_type"],
        first["repo_full_name"],
        first["author"],
        first["commit_id"],
    ) == (
        "endpoint",
        talk.name,
        "jo",
        None,
    )
    assert f"{first['committed_at']:%Y-%m-%dT%H:%M:%SZ}" == issue["created_at"]
    assert first["line_number"] == 3
    assert [event for event, _ in pipeline.events(account)] == ["finding.new"] * 3


def test_discussions_are_off_by_default(talk: Talk) -> None:
    talk.write("issues", 12, token(1))
    assert talk.scan(owner_spec(talk.owner)).findings_seen == 0
    assert not any("/issues" in path for path in talk.pipeline.hub.paths if talk.name in path)


def test_what_people_wrote_is_never_stored_with_an_etag(talk: Talk, pipeline: Pipeline) -> None:
    talk.write("issues", 12, token(1))
    talk.scan()
    kept = pipeline.sql(
        "SELECT key, convert_from(body, 'UTF8') FROM etags WHERE key LIKE %s", f"%{talk.owner}%"
    )
    assert kept, "other responses are kept"
    assert not any("/issues" in key or token(1) in body for key, body in kept)


def test_a_second_scan_lists_only_what_was_edited_and_still_sees_the_rest(talk: Talk) -> None:
    talk.write("issues", 12, token(1))
    talk.scan()
    talk.write("issues", 13, token(2), day=100_000)  # in the future
    before = len(talk.pipeline.hub.paths)
    run = talk.scan()
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (1, 2, 0)
    listed = [path for path in talk.pipeline.hub.paths[before:] if f"{talk.name}/issues?" in path]
    assert listed
    assert "since=" in listed[0]


@pytest.mark.parametrize("how", ["edited", "deleted"])
def test_a_credential_that_is_gone_is_resolved(talk: Talk, how: str) -> None:
    issue = talk.write("issues", 12, token(1))
    talk.write("issues/comments", 12, token(2))
    talk.scan()
    if how == "edited":
        issue["body"] = "removed"
    else:
        talk.pipeline.hub.texts[talk.name]["issues"].clear()
    assert talk.scan().findings_resolved == 1
    assert talk.statuses.pop("issues/12") == "resolved"
    assert set(talk.statuses.values()) == {"resolved", "active"}
    issue["body"] = token(1)
    if how == "edited":
        issue["updated_at"] = "2999-01-01T00:00:00Z"
        assert talk.scan().findings_new == 1
        assert talk.statuses["issues/12"] == "active"


@pytest.mark.parametrize("status", [403, 410, 404, 451])
def test_an_unclear_answer_resolves_nothing(talk: Talk, status: int) -> None:
    talk.write("issues", 12, token(1))
    talk.scan()
    hub = talk.pipeline.hub
    hub.texts[talk.name]["issues"].clear()
    hub.faults += [Fault(path=f"{talk.name}/issues/12", **_error(status))]
    hub.faults += [Fault(path="state=all&per_page=1", **_error(status))] * 1
    # The first list of the scan must not take the fault of the second one.
    hub.faults[-1].path = "/issues?state=all&per_page=1"
    run = talk.scan()
    assert run.findings_resolved == 0
    assert any("issues/12" in gap.what for gap in run.coverage_gaps)
    assert talk.statuses == {"issues/12": "active"}


def _error(status: int) -> dict[str, Any]:
    return {"status": status, "body": error(status, "no").body}


def test_a_list_that_fails_in_the_middle_is_a_gap_and_resolves_nothing(talk: Talk) -> None:
    talk.write("issues", 12, token(1))
    comment = talk.write("issues/comments", 12, token(2))
    talk.scan()
    comment["body"] = "removed"
    talk.write("issues", 14, token(3), day=100_000)
    talk.pipeline.hub.faults += [Fault(path="/pulls/comments", **_error(403))]
    run = talk.scan()
    assert (run.findings_new, run.findings_resolved) == (1, 0)
    assert any("answered 403" in gap.why for gap in run.coverage_gaps)
    assert talk.scan().findings_resolved == 1


def test_another_repository_with_the_name_resolves_nothing(talk: Talk) -> None:
    talk.write("issues", 12, token(1))
    talk.scan()
    hub = talk.pipeline.hub
    hub.texts[talk.name]["issues"].clear()
    run_id, names = talk.pipeline.plan(talk.account, talk.spec)
    hub.repos[talk.name] = talk.repository | {"id": 77_777}
    for name in names:
        talk.pipeline.scan_source(talk.account, run_id, name)
    assert talk.statuses == {"issues/12": "active"}


def test_pull_requests_are_listed_if_issues_are_turned_off(talk: Talk) -> None:
    talk.write("issues", 12, token(1))
    hub = talk.pipeline.hub
    hub.texts[talk.name]["pulls"] = hub.texts[talk.name].pop("issues")
    hub.faults += [Fault(path=f"{talk.name}/issues?", **_error(410))]
    assert talk.scan().findings_new == 1


def test_limits_are_gaps(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 4):
        talk.write("issues", number, token(number))
    monkeypatch.setattr(discussion_source, "DISCUSSION_TEXTS", 2)
    run = talk.scan()
    assert run.findings_new == 2
    assert any("stopped after 2" in gap.why for gap in run.coverage_gaps)
    monkeypatch.undo()
    talk.scan()
    monkeypatch.setattr(discussion_source, "DISCUSSION_CHECKS", 1)
    assert any("2 issues and comments" in gap.why for gap in talk.scan().coverage_gaps)
    assert set(talk.statuses.values()) == {"active"}


def test_a_private_repository_is_not_read_with_the_operators_token(talk: Talk) -> None:
    talk.write("issues", 12, token(1))
    run_id, names = talk.pipeline.plan(talk.account, talk.spec)
    talk.pipeline.hub.repos[talk.name] |= {"visibility": "internal"}
    for name in names:
        talk.pipeline.scan_source(talk.account, run_id, name)
    assert talk.statuses == {}
    run = talk.pipeline.get_run(talk.account, run_id)
    assert any("is not public" in gap.why for gap in run.coverage_gaps)
