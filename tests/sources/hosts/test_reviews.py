"""How the pull requests of a commit are found and marked, on stand-ins of every host that has statuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.code_host.reviews import CommitStatus, ReviewApi
from tests.sources.hosts.test_every_host import KINDS, Kind, Running
from tests.support.code_hosts.stand_in import Repository, StandIn, answer_json, run_stand_in
from tests.support.fake_https import FakeResponse

HEAD, OTHER = "c" * 40, "d" * 40
URL = "https://outcrop.example/scans/1"
BUILD = {"key": "outcrop", "name": "Outcrop", "state": "FAILED", "description": "2 found", "url": URL}
STATUS = {"context": "outcrop", "description": "2 found", "target_url": URL}


def gitlab_case(repo: Repository) -> dict[str, Any]:
    project = f"/projects/{repo.id}"
    requests = [
        {"iid": 7, "sha": HEAD, "state": "opened"},
        {"iid": 8, "sha": HEAD, "state": "merged"},
        {"iid": 9, "sha": OTHER, "state": "opened"},
    ]
    return {
        f"{project}/repository/commits/{HEAD}/merge_requests": requests,
        f"{project}/merge_requests/7/commits": [{"id": HEAD}, {"id": OTHER}],
        "status": (f"{project}/statuses/{HEAD}", {"state": "failed"} | STATUS),
        "comment": (f"{project}/merge_requests/7/notes", {"body": "text"}),
    }


def gitea_case(repo: Repository) -> dict[str, Any]:
    path = f"/repos/{repo.path}"
    requests = [
        {"number": 7, "head": {"sha": HEAD}, "state": "open"},
        {"number": 9, "head": {"sha": OTHER}, "state": "open"},
    ]
    return {
        f"{path}/pulls": requests,
        f"{path}/pulls/7/commits": [{"sha": HEAD}, {"sha": OTHER}],
        "status": (f"{path}/statuses/{HEAD}", {"state": "failure"} | STATUS),
        "comment": (f"{path}/issues/7/comments", {"body": "text"}),
    }


def cloud_case(repo: Repository) -> dict[str, Any]:
    path = f"/repositories/acme/{{{repo.uuid}}}"
    requests = [
        {"id": 7, "source": {"commit": {"hash": HEAD[:12]}}, "state": "OPEN"},
        {"id": 9, "source": {"commit": {"hash": OTHER[:12]}}, "state": "OPEN"},
    ]
    return {
        f"{path}/pullrequests": {"values": requests},
        f"{path}/pullrequests/7/commits": {"values": [{"hash": HEAD}, {"hash": OTHER}]},
        "status": (f"{path}/commit/{HEAD}/statuses/build", BUILD),
        "comment": (f"{path}/pullrequests/7/comments", {"content": {"raw": "text"}}),
    }


def server_case(repo: Repository) -> dict[str, Any]:
    path = f"/projects/ACME/repos/{repo.name}"
    requests = [
        {"id": 7, "fromRef": {"latestCommit": HEAD}, "state": "OPEN"},
        {"id": 8, "fromRef": {"latestCommit": HEAD}, "state": "MERGED"},
    ]
    return {
        f"{path}/commits/{HEAD}/pull-requests": {"values": requests, "isLastPage": True},
        f"{path}/pull-requests/7/commits": {"values": [{"id": HEAD}, {"id": OTHER}], "isLastPage": True},
        "status": (f"{path}/commits/{HEAD}/builds", BUILD),
        "comment": (f"{path}/pull-requests/7/comments", {"text": "text"}),
    }


CASES = {
    KINDS[0]: gitlab_case,
    KINDS[2]: gitea_case,
    KINDS[3]: cloud_case,
    KINDS[4]: server_case,
}


@pytest.fixture(params=CASES, ids=str)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    kind: Kind = request.param
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop", commits=[HEAD])
        yield Running(kind, stand_in)


async def open_reviews(host: CodeHost, owner: str) -> ReviewApi:
    repository, *_ = [repository async for repository in host.repositories(owner)]
    reviews = await host.reviews(repository.key or repository.full_name)
    assert reviews is not None
    return reviews


def add_pull_requests(stand_in: StandIn, kind: Kind) -> dict[str, Any]:
    """Add the pull requests of its kind of host to a stand-in; return the case."""
    case = CASES[kind](stand_in.repositories[0])
    answers = {path: value for path, value in case.items() if path.startswith("/")}
    for path in sorted(answers, key=len, reverse=True):  # the first that is part of a request answers it
        quoted = path.replace("{", "%7B").replace("}", "%7D")
        stand_in.always[f"{quoted}?"] = answer_json(answers[path])
    for path in ("/statuses", "/comments", "/notes"):
        stand_in.always[path] = FakeResponse(201, {}, b"{}")
    stand_in.always["/builds"] = FakeResponse(204)
    return case


async def mark(host: CodeHost, owner: str) -> tuple[list[int], list[str], list[int]]:
    """Make all requests about pull requests."""
    reviews = await open_reviews(host, owner)
    numbers, commits = await reviews.find_open(HEAD), await reviews.commits_of(7)
    await reviews.set_status(HEAD, CommitStatus(is_clean=False, description="2 found", url=URL))
    await reviews.add_comment(7, "text")
    return numbers, commits, await reviews.find_open("e" * 40)


def test_the_open_pull_requests_of_a_commit_are_found_and_marked(running: Running) -> None:
    kind, stand_in = running.kind, running.stand_in
    case = add_pull_requests(stand_in, kind)
    numbers, commits, others = running.call(lambda host: mark(host, kind.owner), kind.token)
    assert (numbers, commits, others) == ([7], [HEAD, OTHER], [])
    posted = [request for request in stand_in.requests if request.method == "POST"]
    sent = [
        (request.path.replace("%7B", "{").replace("%7D", "}"), json.loads(request.body)) for request in posted
    ]
    for (path, body), (expected_path, expected) in zip(sent, (case["status"], case["comment"]), strict=True):
        assert path.endswith(expected_path)
        assert body == expected
    assert {request.headers.get("Content-Type") for request in posted} == {"application/json"}
    assert all(stand_in.is_trusted(request) for request in posted)


def test_a_host_that_refuses_a_status_is_an_error_without_the_token(running: Running) -> None:
    for path in ("/statuses", "/builds"):
        refused = {"message": f"no right: {running.kind.token}"}
        running.stand_in.always[path] = answer_json(refused | {"error": refused, "errors": [refused]}, 403)

    async def mark(host: CodeHost) -> None:
        reviews = await open_reviews(host, running.kind.owner)
        await reviews.set_status(HEAD, CommitStatus(is_clean=True, description="none", url=URL))

    assert running.failure(mark, running.kind.token).kind == "forbidden"
