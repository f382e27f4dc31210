"""Test what each host's payload says about a push."""

from typing import Any

import pytest

from outcrop.domain.push import HookHost, ReportedPush
from outcrop.sources.hooks.delivery import UnreadablePushError
from outcrop.sources.hooks.registry import PROTOCOLS
from tests.support.pushes import ADDRESSES, AFTER, BEFORE, event_headers, payload


def read(host: HookHost, body: dict[str, Any], **headers: str) -> list[ReportedPush]:
    names = {name.lower(): value for name, value in event_headers(host).items()} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return PROTOCOLS[host].read_pushes(names, body)


@pytest.mark.parametrize("host", list(HookHost))
def test_a_push_names_repository_branch_and_author(host: HookHost) -> None:
    (push,) = read(host, payload(host, branch="release/1.2", author="Ada L"))
    assert (push.host, push.branches, push.author) == (host, ("release/1.2",), "Ada L")
    assert push.addresses == (ADDRESSES[host].lower(),)
    assert (push.before, push.after) == (BEFORE, AFTER)
    assert push.repository_id


@pytest.mark.parametrize("host", list(HookHost))
def test_pushes_to_one_repository_have_one_key_and_others_another(host: HookHost) -> None:
    (first,) = read(host, payload(host))
    (second,) = read(host, payload(host, branch="other", author="Ben"))
    (other,) = read(host, payload(host, ADDRESSES[host] + "2"))
    assert first.repository == second.repository != other.repository


@pytest.mark.parametrize(
    ("host", "headers", "body"),
    [
        (HookHost.GITHUB, {"x_github_event": "ping"}, {"zen": "x", "hook_id": 1}),
        (HookHost.GITHUB, {"x_github_event": "issues"}, payload(HookHost.GITHUB)),
        (HookHost.GITLAB, {}, {"object_kind": "issue", "project": {"id": 1}}),
        (HookHost.GITEA, {"x_gitea_event": "create"}, payload(HookHost.GITEA)),
        (HookHost.BITBUCKET, {"x_event_key": "diagnostics:ping"}, {"test": True}),
        (HookHost.AZUREDEVOPS, {}, {"eventType": "build.complete", "resource": {}}),
    ],
)
def test_other_events_are_no_push(host: HookHost, headers: dict[str, str], body: dict[str, Any]) -> None:
    assert read(host, body, **headers) == []


@pytest.mark.parametrize("host", list(HookHost))
@pytest.mark.parametrize("bad", [None, [], "x", 1, {}, {"links": [], "project": 3}])
def test_a_push_without_repository_is_unreadable(host: HookHost, bad: Any) -> None:
    body = payload(host)
    if host is HookHost.AZUREDEVOPS:
        body["resource"]["repository"] = bad
    else:
        body["project" if host is HookHost.GITLAB else "repository"] = bad
    with pytest.raises(UnreadablePushError):
        read(host, body)


@pytest.mark.parametrize("host", list(HookHost))
def test_no_form_of_a_field_ends_in_another_error(host: HookHost) -> None:
    """Replace each value of a payload by values of other types."""

    def variants(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [{**value, key: new} for key in value for new in variants(value[key])] + [None]
        if isinstance(value, list):
            return [[new] for new in variants(value[0])] + [[], [None], "x"]
        return [None, 3, True, [], {}, "\0", "x" * 5_000, "refs/heads/", "https://[::1"]

    for body in variants(payload(host)):
        if isinstance(body, dict):
            try:
                pushes = read(host, body)
            except UnreadablePushError:
                continue
            for push in pushes:
                assert all("\0" not in text for text in (push.author or "", *push.branches))
                assert all(len(branch) <= 300 for branch in push.branches)


def test_a_pull_request_from_a_fork_is_a_push_and_one_of_the_repository_itself_is_not() -> None:
    body = payload(HookHost.GITHUB, action="synchronize", sender={"login": "eve"})
    body["pull_request"] = {"head": {"ref": "fix", "sha": AFTER, "repo": {"id": 99}}}
    del body["pusher"]
    (push,) = read(HookHost.GITHUB, body, x_github_event="pull_request")
    assert (push.branches, push.author, push.after) == (("fix",), "eve", AFTER)
    body["pull_request"]["head"]["repo"]["id"] = 11
    assert read(HookHost.GITHUB, body, x_github_event="pull_request") == []
    merge = payload(HookHost.GITLAB, object_kind="merge_request", user={"name": "Eve"})
    merge["object_attributes"] = {
        "action": "open",
        "source_project_id": 3,
        "target_project_id": 15,
        "source_branch": "fix",
        "last_commit": {"id": AFTER},
    }
    (push,) = read(HookHost.GITLAB, merge)
    assert (push.branches, push.author, push.after) == (("fix",), "Eve", AFTER)


def test_a_push_of_bitbucket_data_center_has_the_clone_address() -> None:
    body = {
        "eventKey": "repo:refs_changed",
        "actor": {"name": "ada", "displayName": "Ada"},
        "repository": {
            "slug": "shop",
            "id": 84,
            "project": {"key": "ACME"},
            "links": {"self": [{"href": "https://git.example.com/projects/ACME/repos/shop/browse"}]},
        },
        "changes": [
            {"ref": {"id": "refs/heads/main", "displayId": "main"}, "fromHash": BEFORE, "toHash": AFTER}
        ],
    }
    (push,) = read(HookHost.BITBUCKET, body, x_event_key="repo:refs_changed")
    assert push.addresses == ("https://git.example.com/acme/shop",)
    assert (push.full_name, push.branches, push.author) == ("ACME/shop", ("main",), "Ada")
    del body["repository"]["links"]  # type: ignore[attr-defined]
    (push,) = read(HookHost.BITBUCKET, body, x_event_key="repo:refs_changed")
    assert (push.addresses, push.full_name) == ((), "ACME/shop")


def test_a_deleted_branch_has_no_commit() -> None:
    (push,) = read(HookHost.GITHUB, payload(HookHost.GITHUB, after="0" * 40))
    assert push.after is None
